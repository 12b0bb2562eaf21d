#ifndef QUIRE_WORKER_MODEL_TRANSFORMER_H_
#define QUIRE_WORKER_MODEL_TRANSFORMER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/backend_buffer.h"
#include "worker/model/config.h"
#include "worker/model/weights.h"

namespace quire {

// The largest step that the scratch memory is made for.
struct StepLimits {
  int max_tokens;      // Of one Forward.
  int max_logit_rows;  // Of one Logits; more rows (prompt logprobs) take several calls.
};

// A dense decoder: embedding, layers of attention and gated MLP, output. Allocates nothing after Create. Owned by the
// executor thread; config, weights and backend are borrowed and must outlive it.
class Transformer {
 public:
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelConfig* config, const ModelWeights* weights,
                                                             Backend* backend, const StepLimits& limits);

  // Runs all layers over the batch, storing K and V of its tokens in their slots.
  // kv_pools is [num_layers]; it and the arrays of the batch are in host memory. REQUIRES: 1 <= batch.num_tokens <=
  // max_tokens; layout matches the config.
  void Forward(const BatchView& host_batch, const KvLayout& layout, void* const* kv_pools);

  // Logits of some token rows of the last Forward: [num_rows, vocab_size] float32 in backend memory, valid until the
  // next Logits. `rows` is host memory. REQUIRES: 1 <= num_rows <= max_logit_rows.
  const float* Logits(const int32_t* rows, int num_rows);

  const StepLimits& limits() const { return limits_; }

 private:
  Transformer(const ModelConfig* config, const ModelWeights* weights, Backend* backend, const StepLimits& limits)
      : config_(*config), weights_(*weights), backend_(backend), limits_(limits) {}

  absl::Status AllocateScratch();
  void RunAttention(const BatchView& batch, const LayerWeights& layer, int window, const KvLayout& layout,
                    void* kv_pool);
  void RunMlp(const LayerWeights& layer, int num_tokens);
  // y becomes the input of `consumer`.
  void Normalize(const void* x, const BackendBuffer& weight, int num_rows, const PackedMatrix& consumer, void* y);

  // Constant after construction.
  const ModelConfig& config_;
  const ModelWeights& weights_;
  Backend* const backend_;
  const StepLimits limits_;

  // Scratch in the backend's activation type, except the logits and what is the input of a matrix, in its type.
  BackendBuffer hidden_;                 // [max_tokens, hidden_size], the residual stream
  BackendBuffer normalized_;             // [max_tokens, hidden_size], an input
  BackendBuffer qkv_;                    // [max_tokens, (num_heads + 2 * num_kv_heads) * head_dim]
  BackendBuffer attention_;              // [max_tokens, num_heads * head_dim], an input
  BackendBuffer gated_;                  // [max_tokens, intermediate_size], an input
  BackendBuffer logit_rows_;             // [max_logit_rows, hidden_size]
  BackendBuffer normalized_logit_rows_;  // [max_logit_rows, hidden_size], an input
  BackendBuffer logits_;                 // [max_logit_rows, vocab_size] float32
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_TRANSFORMER_H_
