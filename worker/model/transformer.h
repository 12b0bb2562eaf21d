// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_TRANSFORMER_H_
#define QUIRE_WORKER_MODEL_TRANSFORMER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/local_group.h"
#include "worker/model/backend_buffer.h"
#include "worker/model/config.h"
#include "worker/model/shard.h"
#include "worker/model/weights.h"

namespace quire {

// The largest step for which scratch memory is allocated.
struct StepLimits {
  int max_tokens;      // The most tokens in one call of Forward.
  int max_logit_rows;  // The most rows in one call of Logits. More rows, as for prompt logprobs, take several calls.
};

// A decoder with an embedding, layers of attention and an MLP or experts, and an output matrix. Owned by the executor
// thread.
class Transformer {
 public:
  // Allocates all memory that the transformer needs. All pointers must stay valid while the transformer exists. A rank
  // of a group seems to be alone with copies of itself until SetGroup.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelConfig* config, const ModelWeights* weights,
                                                             Backend* backend, const StepLimits& limits);

  // Runs all layers over the batch, and stores K and V of its tokens in their slots. There is a view of the batch for
  // each column of block tables. kv_pools is [num_slots]. It and the arrays of the batch are in host memory.
  // REQUIRES: 1 <= num_tokens <= max_tokens, and views and layout match the config.
  void Forward(absl::Span<const BatchView> host_views, const KvLayout& layout, void* const* kv_pools);

  // Does Forward, and then Logits and Backend::Sample. sampling.logits is not read. On a backend that records layers it
  // takes less time than the three calls. REQUIRES: what these require; all arrays stay valid until the call returns,
  // and sampling.results and sampling.top, which are written later, until a mark behind the call is done.
  void ForwardAndSample(absl::Span<const BatchView> host_views, const KvLayout& layout, void* const* kv_pools,
                        const int32_t* rows, int num_rows, const SamplingArgs& sampling);

  // Computes the logits of some token rows of the last Forward. Returns [num_rows, vocab_size] float32 in the backend's
  // memory, valid until the next call of Logits. `rows` is in host memory. REQUIRES: 1 <= num_rows <= max_logit_rows.
  const float* Logits(const int32_t* rows, int num_rows);

  // Does Logits, and then Backend::Sample. sampling.logits is not read. If the backend is synchronous, each of several
  // ranks draws from the rows of logits in turn, and tells the others; if the group ends, all results are -1. Otherwise
  // the tokens stay on the device, and every rank draws all of them from the logits of all ranks. So all ranks have the
  // same results.
  void LogitsAndSample(const int32_t* rows, int num_rows, SamplingArgs sampling);

  // Computes the hidden states of some token rows of the last Forward, which is what the final norm gives, and writes
  // them to `states`, [num_rows, hidden_size]. Both arrays are in host memory. The states are there when a mark behind
  // the call is done. It overwrites the result of Logits.
  void ReadHiddenStates(const int32_t* rows, int num_rows, float* states);

  // Sets the group with which a rank exchanges sums, or none. It must stay valid until the next call. When it ends, the
  // rest of a step is left out, and what the step has computed is undefined. REQUIRES: the group has the ranks of the
  // config, and this one is the rank of the config.
  void SetGroup(Collective* group);
  // Returns the group that was set last; null if there is none.
  const Collective* group() const { return group_ == &alone_ ? nullptr : group_; }

  int num_ranks() const { return config_.shard.size; }
  const StepLimits& limits() const { return limits_; }
  int hidden_size() const { return config_.hidden_size; }

 private:
  Transformer(const ModelConfig* config, const ModelWeights* weights, Backend* backend, const StepLimits& limits)
      : config_(*config),
        weights_(*weights),
        backend_(backend),
        limits_(limits),
        whole_(WholeOf(*config)),
        alone_(config->shard.rank, config->shard.size) {}

  bool has_ranks() const { return num_ranks() > 1; }

  absl::Status AllocateScratch();
  // Copies the batch to the backend. Returns [num_columns] views.
  const BatchView* Prepare(absl::Span<const BatchView> host_views, const KvLayout& layout);
  // Calls queue(), which queues operations of the prepared batch, or queues them as they were recorded. The recorder is
  // null if the backend has none.
  template <typename F>
  void QueueOrReplay(LayerRecorder* recorder, const F& queue);
  // Queues the operations from the embedding to the last layer.
  void RunLayers(const BatchView* views, const KvLayout& layout, void* const* kv_pools);
  // Computes what attention and MLP multiply by their last matrices. Both return the layout of this input.
  InputLayout RunAttention(const BatchView& batch, const LayerWeights& layer, const LayerConfig& shape,
                           const KvLayout& layout, void* kv_pool);
  InputLayout RunMlp(const LayerWeights& layer, int num_tokens);
  // Does the same as RunMlp for an MLP without a gate.
  void RunPlainMlp(const LayerWeights& layer, const void* x, InputLayout x_layout, int num_tokens);
  // Adds the output of the experts to the residual stream.
  void RunExperts(const LayerWeights& layer, int num_tokens);
  // Runs the shared expert on `x` [num_tokens, hidden_size] float32, and returns its output.
  const void* RunSharedExpert(const LayerWeights& layer, const void* x, int num_tokens);
  // Returns the input of a block, attention or MLP, as `consumer` needs it: the normalized residual stream, or the
  // stream itself if the block has no norm of its input.
  const void* BlockInput(const BackendBuffer& norm, int num_tokens, const PackedMatrix& consumer);
  // The layout of the input that BlockInput returns.
  InputLayout BlockInputLayout(const PackedMatrix& consumer, int num_tokens) const;
  // Multiplies the rows `x` by the last matrix of a block and adds the product to the residual stream, after the norm
  // of the block's output if there is one.
  // `has_rows` is as in LayerWeights, and the input has `cols` columns.
  void AddBlockOutput(const void* x, InputLayout x_layout, const PackedMatrix& w, bool has_rows, int cols,
                      const BackendBuffer& bias, const BackendBuffer& norm, int num_tokens);
  // Writes logits to `y`: with several ranks, of the rank's part of the vocabulary.
  void MultiplyOutput(const int32_t* rows, int num_rows, void* y);
  // Does LogitsAndSample on a rank of a synchronous backend.
  void SampleInTurn(const int32_t* rows, int num_rows, const SamplingArgs& sampling);
  // Does AddBlockOutput on a rank, except for the norm.
  void AddRankOutput(const void* x, const PackedMatrix& w, InputLayout x_layout, bool has_rows, int cols,
                     const BackendBuffer& bias, int num_tokens);
  // Returns the arguments that add sums_ of the ranks of `group`, or sums_ alone, to the residual stream, or write them
  // to block_output_ if they are normed first.
  AddPartsArgs AddSums(Collective* group, int num_tokens) const;
  // The layout in which a block makes the input of its last matrix.
  InputLayout LastInputLayout(const PackedMatrix& w, bool has_rows, int num_tokens) const;
  // Adds the output of a block, of which block_output_ has the part before the norm, to the residual stream.
  void AddNormedOutput(const BackendBuffer& norm, int num_tokens);
  // Normalizes all heads of Q together, and all heads of K.
  void NormalizeProjections(const LayerWeights& layer, int num_tokens);
  // Normalizes the `num_heads` heads of this rank, which begin at `x` in each row of qkv_, with those of all ranks.
  void NormalizeWholeHeads(void* x, int num_heads, const BackendBuffer& weight, int num_tokens);
  void Rotate(const BatchView& batch, const LayerWeights& layer, LayerRope rope, const KvLayout& layout, void* kv_pool);
  // Returns the arguments that normalize rows to activations.
  RmsNormArgs NormOf(const void* x, const BackendBuffer& weight, int num_rows, void* y) const;
  // Writes the normalized rows to `y`, in the type that `consumer` needs as its input.
  void Normalize(const void* x, const BackendBuffer& weight, int num_rows, const PackedMatrix& consumer, void* y);

  // Constant after construction.
  const ModelConfig& config_;
  const ModelWeights& weights_;
  Backend* const backend_;
  const StepLimits limits_;
  const ModelConfig whole_;  // Of all ranks.

  LoopbackCollective alone_;
  Collective* group_ = &alone_;

  // Scratch memory. The type is the backend's activation type, except that the inputs of matrices have the type that
  // the matrix needs, and that logits are float32.
  BackendBuffer hidden_;        // [max_tokens, hidden_size]. The residual stream.
  BackendBuffer normalized_;    // [max_tokens, hidden_size]. The input of a matrix.
  BackendBuffer qkv_;           // [max_tokens, (num_heads + 2 * num_kv_heads) * head_dim]
  BackendBuffer attention_;     // [max_tokens, num_heads * head_dim]. The input of a matrix.
  BackendBuffer block_output_;  // [max_tokens, hidden_size]. It is null without norms of outputs.
  BackendBuffer wide_;          // [max_tokens, intermediate_size]. It is null if the MLP has a gate.
  BackendBuffer gated_;         // [max_tokens, width of the widest MLP]. The input of a matrix.
  // Of layers with experts; otherwise null.
  BackendBuffer router_logits_;          // [max_tokens, num_experts, or one more] float32
  BackendBuffer chosen_experts_;         // [max_tokens, top_k] int32
  BackendBuffer expert_weights_;         // [max_tokens, top_k] float32
  BackendBuffer shared_input_;           // [max_tokens, hidden_size]. The input of a matrix.
  BackendBuffer shared_output_;          // [max_tokens, hidden_size]
  BackendBuffer shared_weights_;         // [max_tokens] float32
  BackendBuffer logit_rows_;             // [max_logit_rows, hidden_size]
  BackendBuffer normalized_logit_rows_;  // [max_logit_rows, hidden_size]. The input of a matrix.
  BackendBuffer logits_;                 // [max_logit_rows, vocab_size] float32
  // Of a rank of a group; otherwise null.
  BackendBuffer sums_;         // [max_tokens, hidden_size] float32, of this rank.
  BackendBuffer row_sums_;     // [max_tokens, hidden_size / ranks] float32, of matrices of which the rank has rows.
  BackendBuffer wide_input_;   // [max_tokens, columns]. The input of such a matrix.
  BackendBuffer whole_heads_;  // [max_tokens, heads of all ranks * head_dim]. Null unless norms cover all heads.
  BackendBuffer own_logits_;   // [max_logit_rows, OwnVocabulary] float32
  std::vector<SamplingRow> turn_rows_;    // Scratch of SampleInTurn: what this rank draws,
  std::vector<int32_t> turn_logit_rows_;  // and from which rows of logits.
  std::vector<char> drawn_;               // Results of this rank, and of all ranks.
  std::vector<char> all_drawn_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_TRANSFORMER_H_
