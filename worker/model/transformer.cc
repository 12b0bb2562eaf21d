#include "worker/model/transformer.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace quire {

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(const ModelConfig* config, const ModelWeights* weights,
                                                                 Backend* backend, const StepLimits& limits) {
  if (limits.max_tokens < 1 || limits.max_logit_rows < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a step of ", limits.max_tokens, " tokens and ",
                                                   limits.max_logit_rows, " logit rows, both must be at least 1"));
  }
  std::unique_ptr<Transformer> transformer(new Transformer(config, weights, backend, limits));
  QUIRE_RETURN_IF_ERROR(transformer->AllocateScratch());
  return transformer;
}

absl::Status Transformer::AllocateScratch() {
  const size_t activation = SizeOf(backend_->ActivationType());
  const size_t tokens = limits_.max_tokens;
  const size_t rows = limits_.max_logit_rows;
  const struct {
    BackendBuffer* buffer;
    size_t bytes;
    const char* what;
  } buffers[] = {
      {&hidden_, tokens * config_.hidden_size * activation, "hidden states"},
      {&normalized_, tokens * config_.hidden_size * activation, "normalized hidden states"},
      {&qkv_, tokens * config_.qkv_rows() * activation, "Q, K and V"},
      {&attention_, tokens * config_.num_heads * config_.head_dim * activation, "attention outputs"},
      {&gated_, tokens * config_.intermediate_size * activation, "MLP activations"},
      {&logit_rows_, rows * config_.hidden_size * activation, "hidden states of logit rows"},
      {&normalized_logit_rows_, rows * config_.hidden_size * activation, "normalized hidden states of logit rows"},
      {&logits_, rows * config_.vocab_size * sizeof(float), "logits"},
  };
  for (const auto& [buffer, bytes, what] : buffers) {
    QUIRE_ASSIGN_OR_RETURN(*buffer, BackendBuffer::Allocate(backend_, bytes, what));
  }
  return absl::OkStatus();
}

void Transformer::Forward(const BatchView& host_batch, const KvLayout& layout, void* const* kv_pools) {
  QUIRE_CHECK_GE(host_batch.num_tokens, 1);
  QUIRE_CHECK_LE(host_batch.num_tokens, limits_.max_tokens);
  QUIRE_CHECK_EQ(layout.num_kv_heads, config_.num_kv_heads);
  QUIRE_CHECK_EQ(layout.head_dim, config_.head_dim);
  const BatchView& batch = backend_->PrepareBatch(host_batch, limits_.max_tokens);
  LayerRecorder* const recorder = backend_->layer_recorder();
  if (recorder != nullptr && recorder->ReplayLayers(this)) return;
  RunLayers(batch, layout, kv_pools);
  if (recorder != nullptr && !recorder->EndLayers()) RunLayers(batch, layout, kv_pools);
}

void Transformer::RunLayers(const BatchView& batch, const KvLayout& layout, void* const* kv_pools) {
  backend_->Embed(*weights_.embedding, batch.token_ids, batch.num_tokens, /*scale=*/1, hidden_.get());
  for (int i = 0; i < config_.num_layers; ++i) {
    const LayerWeights& layer = weights_.layers[i];
    RunAttention(batch, layer, config_.sliding_windows[i], layout, kv_pools[i]);
    RunMlp(layer, batch.num_tokens);
  }
}

const float* Transformer::Logits(const int32_t* rows, int num_rows) {
  QUIRE_CHECK_GE(num_rows, 1);
  QUIRE_CHECK_LE(num_rows, limits_.max_logit_rows);
  backend_->GatherRows(hidden_.get(), rows, num_rows, config_.hidden_size, logit_rows_.get());
  Normalize(logit_rows_.get(), weights_.final_norm, num_rows, weights_.output(), normalized_logit_rows_.get());
  LinearArgs output{};
  output.x = normalized_logit_rows_.get();
  output.w = &weights_.output();
  output.y = logits_.get();
  output.num_tokens = num_rows;
  backend_->Linear(output);
  return logits_.floats();
}

void Transformer::RunAttention(const BatchView& batch, const LayerWeights& layer, int window, const KvLayout& layout,
                               void* kv_pool) {
  Normalize(hidden_.get(), layer.input_norm, batch.num_tokens, *layer.qkv, normalized_.get());
  LinearArgs project{};
  project.x = normalized_.get();
  project.w = layer.qkv.get();
  project.bias = layer.qkv_bias.floats();
  project.y = qkv_.get();
  project.num_tokens = batch.num_tokens;
  project.y_type = backend_->ActivationType();
  backend_->Linear(project);

  RopeAppendArgs append{};
  append.batch = &batch;
  append.qkv = qkv_.get();
  append.num_heads = config_.num_heads;
  append.q_norm = layer.q_norm.floats();
  append.k_norm = layer.k_norm.floats();
  append.norm_epsilon = config_.rms_norm_eps;
  append.inv_freq = weights_.inv_freq.floats();
  append.rotary_dim = config_.head_dim;
  append.attention_scaling = static_cast<float>(config_.rope.attention_factor);
  append.layout = &layout;
  append.kv_pool = kv_pool;
  backend_->RopeAppend(append);

  AttentionArgs attend{};
  attend.batch = &batch;
  attend.q = qkv_.get();
  attend.q_stride = config_.qkv_rows();
  attend.out = attention_.get();
  attend.out_type = backend_->InputType(*layer.attention_output);
  attend.num_heads = config_.num_heads;
  attend.scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  attend.window = window;
  attend.layout = &layout;
  attend.kv_pool = kv_pool;
  backend_->Attention(attend);

  LinearArgs output{};
  output.x = attention_.get();
  output.w = layer.attention_output.get();
  output.bias = layer.attention_output_bias.floats();
  output.residual = hidden_.get();
  output.y = hidden_.get();
  output.num_tokens = batch.num_tokens;
  output.y_type = backend_->ActivationType();
  backend_->Linear(output);
}

void Transformer::RunMlp(const LayerWeights& layer, int num_tokens) {
  Normalize(hidden_.get(), layer.mlp_norm, num_tokens, *layer.gate_up, normalized_.get());
  GatedLinearArgs widen{};
  widen.x = normalized_.get();
  widen.w = layer.gate_up.get();
  widen.bias = layer.gate_up_bias.floats();
  widen.y = gated_.get();
  widen.y_type = backend_->InputType(*layer.down);
  widen.num_tokens = num_tokens;
  backend_->GatedLinear(widen);

  LinearArgs narrow{};
  narrow.x = gated_.get();
  narrow.w = layer.down.get();
  narrow.bias = layer.down_bias.floats();
  narrow.residual = hidden_.get();
  narrow.y = hidden_.get();
  narrow.num_tokens = num_tokens;
  narrow.y_type = backend_->ActivationType();
  backend_->Linear(narrow);
}

void Transformer::Normalize(const void* x, const BackendBuffer& weight, int num_rows, const PackedMatrix& consumer,
                            void* y) {
  RmsNormArgs args{};
  args.x = x;
  args.weight = weight.floats();
  args.y = y;
  args.num_rows = num_rows;
  args.dim = config_.hidden_size;
  args.epsilon = config_.rms_norm_eps;
  args.y_type = backend_->InputType(consumer);
  backend_->RmsNorm(args);
}

}  // namespace quire
