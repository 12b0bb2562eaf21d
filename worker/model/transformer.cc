// SPDX-License-Identifier: Apache-2.0

#include "worker/model/transformer.h"

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
      {&block_output_, config_.norms == NormPlacement::kBefore ? 0 : tokens * config_.hidden_size * activation,
       "outputs of attention and MLP"},
      {&gated_, tokens * config_.intermediate_size * activation, "MLP activations"},
      {&logit_rows_, rows * config_.hidden_size * activation, "hidden states of logit rows"},
      {&normalized_logit_rows_, rows * config_.hidden_size * activation, "normalized hidden states of logit rows"},
      {&logits_, rows * config_.vocab_size * sizeof(float), "logits"},
  };
  for (const auto& [buffer, bytes, what] : buffers) {
    if (bytes == 0) continue;
    QUIRE_ASSIGN_OR_RETURN(*buffer, BackendBuffer::Allocate(backend_, bytes, what));
  }
  return absl::OkStatus();
}

const BatchView& Transformer::Prepare(const BatchView& host_batch, const KvLayout& layout) {
  QUIRE_CHECK_GE(host_batch.num_tokens, 1);
  QUIRE_CHECK_LE(host_batch.num_tokens, limits_.max_tokens);
  QUIRE_CHECK_EQ(layout.num_kv_heads, config_.num_kv_heads);
  QUIRE_CHECK_EQ(layout.head_dim, config_.head_dim);
  return backend_->PrepareBatch(host_batch, limits_.max_tokens);
}

template <typename F>
void Transformer::QueueOrReplay(LayerRecorder* recorder, const F& queue) {
  if (recorder != nullptr && recorder->ReplayLayers(this)) return;
  queue();
  if (recorder != nullptr && !recorder->EndLayers()) queue();
}

void Transformer::Forward(const BatchView& host_batch, const KvLayout& layout, void* const* kv_pools) {
  const BatchView& batch = Prepare(host_batch, layout);
  QueueOrReplay(backend_->layer_recorder(), [&] { RunLayers(batch, layout, kv_pools); });
}

void Transformer::ForwardAndSample(const BatchView& host_batch, const KvLayout& layout, void* const* kv_pools,
                                   const int32_t* rows, int num_rows, SamplingArgs sampling) {
  LayerRecorder* const recorder = backend_->layer_recorder();
  if (recorder != nullptr) recorder->AnnounceOutputs(rows, num_rows, limits_.max_logit_rows, sampling);
  const BatchView& batch = Prepare(host_batch, layout);
  const auto sample = [&](int num_output_rows) {
    sampling.logits = Logits(rows, num_output_rows);
    backend_->Sample(sampling);
  };
  const int num_output_rows = recorder == nullptr ? 0 : recorder->NumOutputRows();
  QueueOrReplay(recorder, [&] {
    RunLayers(batch, layout, kv_pools);
    if (num_output_rows > 0) sample(num_output_rows);
  });
  if (num_output_rows > 0) {
    recorder->CopyResults();
  } else {
    sample(num_rows);
  }
}

void Transformer::RunLayers(const BatchView& batch, const KvLayout& layout, void* const* kv_pools) {
  backend_->Embed(*weights_.embedding, batch.token_ids, batch.num_tokens, config_.embedding_scale, hidden_.get());
  for (int i = 0; i < config_.num_layers; ++i) {
    const LayerWeights& layer = weights_.layers[i];
    RunAttention(batch, layer, config_.layers[i], layout, kv_pools[i]);
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
  output.x_layout = backend_->InputLayoutOf(weights_.output(), num_rows);
  output.w = &weights_.output();
  output.y = logits_.get();
  output.num_tokens = num_rows;
  output.scale = config_.logit_scale;
  output.softcap = config_.logit_softcap;
  backend_->Linear(output);
  return logits_.floats();
}

const void* Transformer::BlockInput(const BackendBuffer& norm, int num_tokens, const PackedMatrix& consumer) {
  if (config_.norms != NormPlacement::kAfter) {
    Normalize(hidden_.get(), norm, num_tokens, consumer, normalized_.get());
    return normalized_.get();
  }
  const DataType type = backend_->InputType(consumer);
  if (type == backend_->ActivationType()) return hidden_.get();
  backend_->Round(hidden_.get(), num_tokens, config_.hidden_size, type, normalized_.get());
  return normalized_.get();
}

InputLayout Transformer::BlockInputLayout(const PackedMatrix& consumer, int num_tokens) const {
  const bool is_normed = config_.norms != NormPlacement::kAfter;
  return is_normed ? backend_->InputLayoutOf(consumer, num_tokens) : InputLayout::kRows;
}

void Transformer::AddBlockOutput(const void* x, InputLayout x_layout, const PackedMatrix& w, const BackendBuffer& bias,
                                 const BackendBuffer& norm, int num_tokens) {
  LinearArgs output{};
  output.x = x;
  output.x_layout = x_layout;
  output.w = &w;
  output.bias = bias.floats();
  output.num_tokens = num_tokens;
  output.y_type = backend_->ActivationType();
  output.scale = config_.residual_scale;
  if (config_.norms == NormPlacement::kBefore) {
    output.residual = hidden_.get();
    output.y = hidden_.get();
    return backend_->Linear(output);
  }
  output.y = block_output_.get();
  backend_->Linear(output);
  RmsNormArgs add{};
  add.x = block_output_.get();
  add.weight = norm.floats();
  add.y = hidden_.get();
  add.num_rows = num_tokens;
  add.dim = config_.hidden_size;
  add.epsilon = config_.rms_norm_eps;
  add.y_type = backend_->ActivationType();
  add.residual = hidden_.get();
  backend_->RmsNorm(add);
}

void Transformer::NormalizeProjections(const LayerWeights& layer, int num_tokens) {
  const int q_dim = config_.num_heads * config_.head_dim;
  RmsNormArgs norm{};
  norm.x = norm.y = qkv_.get();
  norm.weight = layer.q_norm.floats();
  norm.num_rows = num_tokens;
  norm.dim = q_dim;
  norm.epsilon = config_.rms_norm_eps;
  norm.y_type = backend_->ActivationType();
  norm.x_stride = norm.y_stride = config_.qkv_rows();
  backend_->RmsNorm(norm);
  norm.x = norm.y = static_cast<char*>(qkv_.get()) + q_dim * SizeOf(backend_->ActivationType());
  norm.weight = layer.k_norm.floats();
  norm.dim = config_.num_kv_heads * config_.head_dim;
  backend_->RmsNorm(norm);
}

void Transformer::Rotate(const BatchView& batch, const LayerWeights& layer, LayerRope rope, const KvLayout& layout,
                         void* kv_pool) {
  const bool norms_heads = config_.qk_norm == QkNorm::kPerHead;
  RopeAppendArgs append{};
  append.batch = &batch;
  append.qkv = qkv_.get();
  append.num_heads = config_.num_heads;
  append.q_norm = norms_heads ? layer.q_norm.floats() : nullptr;
  append.k_norm = norms_heads ? layer.k_norm.floats() : nullptr;
  append.norm_epsilon = config_.rms_norm_eps;
  append.rotary_dim = config_.head_dim;
  append.attention_scaling = 1;
  if (rope == LayerRope::kNone) {
    append.inv_freq = weights_.no_inv_freq.floats();
  } else {
    const bool is_window = rope == LayerRope::kWindow;
    const RopeConfig& config = is_window ? *config_.window_rope : config_.rope;
    append.inv_freq = (is_window ? weights_.window_inv_freq : weights_.inv_freq).floats();
    append.rotary_dim = RotaryDim(config, config_.head_dim);
    append.attention_scaling = static_cast<float>(config.attention_factor);
  }
  append.layout = &layout;
  append.kv_pool = kv_pool;
  backend_->RopeAppend(append);
}

void Transformer::RunAttention(const BatchView& batch, const LayerWeights& layer, const LayerConfig& shape,
                               const KvLayout& layout, void* kv_pool) {
  LinearArgs project{};
  project.x = BlockInput(layer.input_norm, batch.num_tokens, *layer.qkv);
  project.x_layout = BlockInputLayout(*layer.qkv, batch.num_tokens);
  project.w = layer.qkv.get();
  project.bias = layer.qkv_bias.floats();
  project.y = qkv_.get();
  project.num_tokens = batch.num_tokens;
  project.y_type = backend_->ActivationType();
  backend_->Linear(project);
  if (config_.qk_norm == QkNorm::kWhole) NormalizeProjections(layer, batch.num_tokens);
  Rotate(batch, layer, shape.rope, layout, kv_pool);

  AttentionArgs attend{};
  attend.batch = &batch;
  attend.q = qkv_.get();
  attend.q_stride = config_.qkv_rows();
  attend.out = attention_.get();
  attend.out_type = backend_->InputType(*layer.attention_output);
  attend.out_layout = backend_->InputLayoutOf(*layer.attention_output, batch.num_tokens);
  attend.num_heads = config_.num_heads;
  attend.scale = config_.attention_scale;
  attend.window = shape.window;
  attend.layout = &layout;
  attend.kv_pool = kv_pool;
  attend.softcap = config_.attention_softcap;
  backend_->Attention(attend);
  AddBlockOutput(attention_.get(), attend.out_layout, *layer.attention_output, layer.attention_output_bias,
                 layer.attention_output_norm, batch.num_tokens);
}

void Transformer::RunMlp(const LayerWeights& layer, int num_tokens) {
  GatedLinearArgs widen{};
  widen.x = BlockInput(layer.mlp_norm, num_tokens, *layer.gate_up);
  widen.x_layout = BlockInputLayout(*layer.gate_up, num_tokens);
  if (widen.x_layout != InputLayout::kRows) widen.y_layout = backend_->InputLayoutOf(*layer.down, num_tokens);
  widen.w = layer.gate_up.get();
  widen.bias = layer.gate_up_bias.floats();
  widen.y = gated_.get();
  widen.y_type = backend_->InputType(*layer.down);
  widen.num_tokens = num_tokens;
  widen.activation = config_.activation;
  backend_->GatedLinear(widen);
  AddBlockOutput(gated_.get(), widen.y_layout, *layer.down, layer.down_bias, layer.mlp_output_norm, num_tokens);
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
  args.y_layout = backend_->InputLayoutOf(consumer, num_rows);
  backend_->RmsNorm(args);
}

}  // namespace quire
