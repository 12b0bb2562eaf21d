// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_LAYER_RECORDER_H_
#define QUIRE_KERNELS_LAYER_RECORDER_H_

#include <cstdint>

#include "kernels/sampling.h"

namespace quire {

// Records the operations of a step and queues them again for a later batch, which takes less time of the host than
// calling them one by one. Used by one thread.
class LayerRecorder {
 public:
  virtual ~LayerRecorder() = default;

  // Announces, before PrepareBatch, what the caller will do after the layers of that batch: gather these token rows,
  // and sample with these arguments (without logits) from what it computes of them. All arrays must stay valid until
  // the step is queued. sampling.results and sampling.top are written later, and must stay valid until a mark behind
  // the step is done. `max_rows` is the largest number of rows that the caller can gather.
  virtual void AnnounceOutputs(const int32_t* rows, int num_rows, int max_rows, const SamplingArgs& sampling) = 0;
  // Returns, after PrepareBatch, how many rows the caller must gather, which may be more than it has announced; those
  // behind have no meaning. Then the operations from GatherRows to Sample belong to the layers, and Sample writes no
  // results. When it returns 0, they do not, as if nothing had been announced.
  virtual int NumOutputRows() const = 0;

  // Call it for a prepared batch, before Embed. When it returns true, it has queued the operations from Embed to the
  // last layer, or to Sample, as they were recorded for an earlier batch, and the caller must skip them. When it
  // returns false, the caller must run them and then call EndLayers. `model` identifies the caller. Its operations and
  // their addresses may depend on the number of tokens and on NumOutputRows, but on nothing else of the batch.
  virtual bool ReplayLayers(const void* model) = 0;
  // Ends the recording if ReplayLayers has begun one. When it returns false, there was no memory for the recording, and
  // the operations have not been queued: the caller must run them once more, without a call of EndLayers.
  virtual bool EndLayers() = 0;
  // Queues the copies of the results of the announced draws. REQUIRES: the layers are queued, and NumOutputRows is not
  // 0.
  virtual void CopyResults() = 0;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_LAYER_RECORDER_H_
