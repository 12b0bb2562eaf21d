// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_TRANSFORMER_H_
#define QUIRE_WORKER_MODEL_TRANSFORMER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/backend_buffer.h"
#include "worker/model/config.h"
#include "worker/model/weights.h"

namespace quire {

// The largest step for which scratch memory is allocated.
struct StepLimits {
  int max_tokens;      // The most tokens in one call of Forward.
  int max_logit_rows;  // The most rows in one call of Logits. More rows, as for prompt logprobs, take several calls.
};

// A dense decoder with an embedding, layers of attention and gated MLP, and an output matrix. Owned by the executor
// thread.
class Transformer {
 public:
  // Allocates all memory that the transformer needs. All pointers must stay valid while the transformer exists.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelConfig* config, const ModelWeights* weights,
                                                             Backend* backend, const StepLimits& limits);

  // Runs all layers over the batch, and stores K and V of its tokens in their slots. kv_pools is [num_layers]. It and
  // the arrays of the batch are in host memory. REQUIRES: 1 <= batch.num_tokens <= max_tokens, and the layout matches
  // the config.
  void Forward(const BatchView& host_batch, const KvLayout& layout, void* const* kv_pools);

  // Does Forward, and then Logits and Backend::Sample. sampling.logits is not read. On a backend that records layers it
  // takes less time than the three calls. REQUIRES: what these require; all arrays stay valid until the call returns,
  // and sampling.results and sampling.top, which are written later, until a mark behind the call is done.
  void ForwardAndSample(const BatchView& host_batch, const KvLayout& layout, void* const* kv_pools, const int32_t* rows,
                        int num_rows, SamplingArgs sampling);

  // Computes the logits of some token rows of the last Forward. Returns [num_rows, vocab_size] float32 in the backend's
  // memory, valid until the next call of Logits. `rows` is in host memory. REQUIRES: 1 <= num_rows <= max_logit_rows.
  const float* Logits(const int32_t* rows, int num_rows);

  const StepLimits& limits() const { return limits_; }

 private:
  Transformer(const ModelConfig* config, const ModelWeights* weights, Backend* backend, const StepLimits& limits)
      : config_(*config), weights_(*weights), backend_(backend), limits_(limits) {}

  absl::Status AllocateScratch();
  // Copies the batch to the backend.
  const BatchView& Prepare(const BatchView& host_batch, const KvLayout& layout);
  // Calls queue(), which queues operations of the prepared batch, or queues them as they were recorded. The recorder is
  // null if the backend has none.
  template <typename F>
  void QueueOrReplay(LayerRecorder* recorder, const F& queue);
  // Queues the operations from the embedding to the last layer.
  void RunLayers(const BatchView& batch, const KvLayout& layout, void* const* kv_pools);
  void RunAttention(const BatchView& batch, const LayerWeights& layer, const LayerConfig& shape, const KvLayout& layout,
                    void* kv_pool);
  void RunMlp(const LayerWeights& layer, int num_tokens);
  // Returns the input of a block, attention or MLP, as `consumer` needs it: the normalized residual stream, or the
  // stream itself if the block has no norm of its input.
  const void* BlockInput(const BackendBuffer& norm, int num_tokens, const PackedMatrix& consumer);
  // The layout of the input that BlockInput returns.
  InputLayout BlockInputLayout(const PackedMatrix& consumer, int num_tokens) const;
  // Multiplies the rows `x` by the last matrix of a block and adds the product to the residual stream, after the norm
  // of the block's output if there is one.
  void AddBlockOutput(const void* x, InputLayout x_layout, const PackedMatrix& w, const BackendBuffer& bias,
                      const BackendBuffer& norm, int num_tokens);
  // Normalizes all heads of Q together, and all heads of K.
  void NormalizeProjections(const LayerWeights& layer, int num_tokens);
  void Rotate(const BatchView& batch, const LayerWeights& layer, LayerRope rope, const KvLayout& layout, void* kv_pool);
  // Writes the normalized rows to `y`, in the type that `consumer` needs as its input.
  void Normalize(const void* x, const BackendBuffer& weight, int num_rows, const PackedMatrix& consumer, void* y);

  // Constant after construction.
  const ModelConfig& config_;
  const ModelWeights& weights_;
  Backend* const backend_;
  const StepLimits limits_;

  // Scratch memory. The type is the backend's activation type, except that the inputs of matrices have the type that
  // the matrix needs, and that logits are float32.
  BackendBuffer hidden_;                 // [max_tokens, hidden_size]. The residual stream.
  BackendBuffer normalized_;             // [max_tokens, hidden_size]. The input of a matrix.
  BackendBuffer qkv_;                    // [max_tokens, (num_heads + 2 * num_kv_heads) * head_dim]
  BackendBuffer attention_;              // [max_tokens, num_heads * head_dim]. The input of a matrix.
  BackendBuffer block_output_;           // [max_tokens, hidden_size]. It is null without norms of outputs.
  BackendBuffer gated_;                  // [max_tokens, intermediate_size]. The input of a matrix.
  BackendBuffer logit_rows_;             // [max_logit_rows, hidden_size]
  BackendBuffer normalized_logit_rows_;  // [max_logit_rows, hidden_size]. The input of a matrix.
  BackendBuffer logits_;                 // [max_logit_rows, vocab_size] float32
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_TRANSFORMER_H_
