#ifndef QUIRE_KERNELS_LAYER_RECORDER_H_
#define QUIRE_KERNELS_LAYER_RECORDER_H_

namespace quire {

// Records the operations of a model's layers and queues them again for a later batch, which takes less time of the host
// than calling them one by one. Used by one thread.
class LayerRecorder {
 public:
  virtual ~LayerRecorder() = default;

  // Call it for a prepared batch, before Embed. When it returns true, it has queued the operations from Embed to the
  // last layer as they were recorded for an earlier batch, and the caller must skip them. When it returns false, the
  // caller must run them and then call EndLayers. `model` identifies the caller. Its operations and their addresses may
  // depend on the number of tokens, but on nothing else of the batch.
  virtual bool ReplayLayers(const void* model) = 0;
  // Ends the recording if ReplayLayers has begun one. When it returns false, there was no memory for the recording, and
  // the operations have not been queued: the caller must run them once more, without a call of EndLayers.
  virtual bool EndLayers() = 0;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_LAYER_RECORDER_H_
