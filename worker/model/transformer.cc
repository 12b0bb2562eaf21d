// SPDX-License-Identifier: Apache-2.0

#include "worker/model/transformer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace quire {
namespace {

size_t WidestMlp(const ModelConfig& config) {
  const bool has_experts_only = config.moe.exists() && std::ranges::all_of(config.layers, &LayerConfig::is_moe);
  return std::max(has_experts_only ? 0 : config.intermediate_size, config.moe.shared_width);
}

// Returns the columns of the widest last matrix of which a rank has rows.
size_t WidestRowsInput(const ModelConfig& whole, const ModelWeights& weights) {
  size_t widest = 0;
  for (const LayerWeights& layer : weights.layers) {
    const size_t attention = size_t(whole.num_heads) * whole.head_dim;
    if (layer.attention_output_has_rows) widest = std::max(widest, attention);
    if (layer.down_has_rows) widest = std::max(widest, size_t(whole.intermediate_size));
  }
  return widest;
}

}  // namespace

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
  const size_t shared_tokens = config_.moe.shared_width > 0 ? tokens : 0;
  const size_t rank_tokens = has_ranks() ? tokens : 0;
  const size_t wide_input = has_ranks() ? WidestRowsInput(whole_, weights_) : 0;
  const size_t whole_heads = config_.qk_norm == QkNorm::kWhole ? size_t(whole_.num_heads) * config_.head_dim : 0;
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
      {&wide_, config_.has_gate() ? 0 : tokens * config_.intermediate_size * activation, "MLP sums"},
      {&gated_, tokens * WidestMlp(config_) * activation, "MLP activations"},
      {&router_logits_, tokens * config_.moe.num_logits() * sizeof(float), "logits of the router"},
      {&chosen_experts_, tokens * config_.moe.router.top_k * sizeof(int32_t), "numbers of experts"},
      {&expert_weights_, tokens * config_.moe.router.top_k * sizeof(float), "weights of experts"},
      {&shared_input_, shared_tokens * config_.hidden_size * activation, "inputs of the shared expert"},
      {&shared_output_, shared_tokens * config_.hidden_size * activation, "outputs of the shared expert"},
      {&shared_weights_, shared_tokens * sizeof(float), "weights of the shared expert"},
      {&sums_, rank_tokens * config_.hidden_size * sizeof(float), "sums of this rank"},
      {&row_sums_, wide_input == 0 ? 0 : rank_tokens * config_.hidden_size / config_.shard.size * sizeof(float),
       "rows of this rank"},
      {&wide_input_, rank_tokens * wide_input * activation, "inputs of all ranks"},
      {&whole_heads_, rank_tokens * whole_heads * activation, "heads of all ranks"},
      {&own_logits_, has_ranks() ? rows * OwnVocabulary(config_).size() * sizeof(float) : 0, "logits of this rank"},
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

const BatchView* Transformer::Prepare(absl::Span<const BatchView> host_views, const KvLayout& layout) {
  QUIRE_CHECK_EQ(static_cast<int>(host_views.size()), config_.num_columns());
  QUIRE_CHECK_GE(host_views[0].num_tokens, 1);
  QUIRE_CHECK_LE(host_views[0].num_tokens, limits_.max_tokens);
  QUIRE_CHECK_EQ(layout.num_kv_heads, config_.num_kv_heads);
  QUIRE_CHECK_EQ(layout.head_dim, config_.head_dim);
  return backend_->PrepareBatch(host_views.data(), static_cast<int>(host_views.size()), limits_.max_tokens);
}

template <typename F>
void Transformer::QueueOrReplay(LayerRecorder* recorder, const F& queue) {
  if (recorder != nullptr && recorder->ReplayLayers(this)) return;
  queue();
  if (recorder != nullptr && !recorder->EndLayers()) queue();
}

void Transformer::Forward(absl::Span<const BatchView> host_views, const KvLayout& layout, void* const* kv_pools) {
  const BatchView* const views = Prepare(host_views, layout);
  QueueOrReplay(backend_->layer_recorder(), [&] { RunLayers(views, layout, kv_pools); });
}

void Transformer::ForwardAndSample(absl::Span<const BatchView> host_views, const KvLayout& layout,
                                   void* const* kv_pools, const int32_t* rows, int num_rows,
                                   const SamplingArgs& sampling) {
  LayerRecorder* const recorder = backend_->layer_recorder();
  if (recorder != nullptr) recorder->AnnounceOutputs(rows, num_rows, limits_.max_logit_rows, sampling);
  const BatchView* const views = Prepare(host_views, layout);
  const auto sample = [&](int num_output_rows) { LogitsAndSample(rows, num_output_rows, sampling); };
  const int num_output_rows = recorder == nullptr ? 0 : recorder->NumOutputRows();
  QueueOrReplay(recorder, [&] {
    RunLayers(views, layout, kv_pools);
    if (num_output_rows > 0) sample(num_output_rows);
  });
  if (num_output_rows > 0) {
    recorder->CopyResults();
  } else {
    sample(num_rows);
  }
}

void Transformer::RunLayers(const BatchView* views, const KvLayout& layout, void* const* kv_pools) {
  const int num_tokens = views->num_tokens;
  backend_->Embed(*weights_.embedding, views->token_ids, num_tokens, config_.embedding_scale, hidden_.get());
  for (int i = 0; i < config_.num_layers; ++i) {
    if (has_ranks() && !group_->Status().ok()) return;
    const LayerWeights& layer = weights_.layers[i];
    const LayerConfig& shape = config_.layers[i];
    const auto add_attention = [&](InputLayout x_layout) {
      AddBlockOutput(attention_.get(), x_layout, *layer.attention_output, layer.attention_output_has_rows,
                     whole_.num_heads * config_.head_dim, layer.attention_output_bias, layer.attention_output_norm,
                     num_tokens);
    };
    // In parallel, the MLP's input is the residual stream without attention's output. No such layer has experts.
    const InputLayout attention_layout = RunAttention(views[shape.column], layer, shape, layout, kv_pools[shape.slot]);
    if (!config_.is_parallel) add_attention(attention_layout);
    if (shape.is_moe) {
      RunExperts(layer, num_tokens);
      continue;
    }
    const InputLayout mlp_layout = RunMlp(layer, num_tokens);
    if (config_.is_parallel) add_attention(attention_layout);
    AddBlockOutput(gated_.get(), mlp_layout, *layer.down, layer.down_has_rows, whole_.intermediate_size,
                   layer.down_bias, layer.mlp_output_norm, num_tokens);
  }
}

void Transformer::MultiplyOutput(const int32_t* rows, int num_rows, void* y) {
  QUIRE_CHECK_GE(num_rows, 1);
  QUIRE_CHECK_LE(num_rows, limits_.max_logit_rows);
  backend_->GatherRows(hidden_.get(), rows, num_rows, config_.hidden_size, logit_rows_.get());
  Normalize(logit_rows_.get(), weights_.final_norm, num_rows, weights_.output(), normalized_logit_rows_.get());
  LinearArgs output{};
  output.x = normalized_logit_rows_.get();
  output.x_layout = backend_->InputLayoutOf(weights_.output(), num_rows);
  output.w = &weights_.output();
  output.y = y;
  output.num_tokens = num_rows;
  output.scale = config_.logit_scale;
  output.softcap = config_.logit_softcap;
  backend_->Linear(output);
}

const float* Transformer::Logits(const int32_t* rows, int num_rows) {
  MultiplyOutput(rows, num_rows, has_ranks() ? own_logits_.get() : logits_.get());
  if (has_ranks()) {
    backend_->GatherColumns({.group = group_,
                             .x = own_logits_.get(),
                             .x_stride = OwnVocabulary(config_).size(),
                             .y = logits_.get(),
                             .num_rows = num_rows,
                             .cols = config_.vocab_size,
                             .type = DataType::kFloat32});
  }
  return logits_.floats();
}

void Transformer::LogitsAndSample(const int32_t* rows, int num_rows, SamplingArgs sampling) {
  if (has_ranks() && !backend_->IsAsynchronous()) return SampleInTurn(rows, num_rows, sampling);
  sampling.logits = Logits(rows, num_rows);
  backend_->Sample(sampling);
}

void Transformer::ReadHiddenStates(const int32_t* rows, int num_rows, float* states) {
  for (int begin = 0; begin < num_rows; begin += limits_.max_logit_rows) {
    const int count = std::min(num_rows - begin, limits_.max_logit_rows);
    backend_->GatherRows(hidden_.get(), rows + begin, count, config_.hidden_size, logit_rows_.get());
    backend_->RmsNorm(NormOf(logit_rows_.get(), weights_.final_norm, count, normalized_logit_rows_.get()));
    backend_->ReadRows(normalized_logit_rows_.get(), count, config_.hidden_size,
                       states + size_t(begin) * static_cast<size_t>(config_.hidden_size));
  }
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

void Transformer::AddBlockOutput(const void* x, InputLayout x_layout, const PackedMatrix& w, bool has_rows, int cols,
                                 const BackendBuffer& bias, const BackendBuffer& norm, int num_tokens) {
  if (has_ranks()) {
    AddRankOutput(x, w, x_layout, has_rows, cols, bias, num_tokens);
    if (config_.norms != NormPlacement::kBefore) AddNormedOutput(norm, num_tokens);
    return;
  }
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
  AddNormedOutput(norm, num_tokens);
}

void Transformer::AddNormedOutput(const BackendBuffer& norm, int num_tokens) {
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
  void* const k = static_cast<char*>(qkv_.get()) + q_dim * SizeOf(backend_->ActivationType());
  if (has_ranks()) {
    NormalizeWholeHeads(qkv_.get(), config_.num_heads, layer.q_norm, num_tokens);
    NormalizeWholeHeads(k, config_.num_kv_heads, layer.k_norm, num_tokens);
    return;
  }
  RmsNormArgs norm{};
  norm.x = norm.y = qkv_.get();
  norm.weight = layer.q_norm.floats();
  norm.num_rows = num_tokens;
  norm.dim = q_dim;
  norm.epsilon = config_.rms_norm_eps;
  norm.y_type = backend_->ActivationType();
  norm.x_stride = norm.y_stride = config_.qkv_rows();
  backend_->RmsNorm(norm);
  norm.x = norm.y = k;
  norm.weight = layer.k_norm.floats();
  norm.dim = config_.num_kv_heads * config_.head_dim;
  backend_->RmsNorm(norm);
}

void Transformer::Rotate(const BatchView& batch, const LayerWeights& layer, LayerRope rope, const KvLayout& layout,
                         void* kv_pool) {
  const bool norms_heads = config_.qk_norm == QkNorm::kPerHead || config_.qk_norm == QkNorm::kPerRotatedHead;
  RopeAppendArgs append{};
  append.batch = &batch;
  append.qkv = qkv_.get();
  append.num_heads = config_.num_heads;
  append.q_norm = norms_heads ? layer.q_norm.floats() : nullptr;
  append.k_norm = norms_heads ? layer.k_norm.floats() : nullptr;
  append.norm_epsilon = config_.rms_norm_eps;
  append.rotary_dim = config_.head_dim;
  append.attention_scaling = 1;
  append.norms_after_rotation = config_.qk_norm == QkNorm::kPerRotatedHead;
  append.query_growth = static_cast<float>(config_.rope.query_growth);
  append.query_span = config_.rope.original_max_position_embeddings;
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

InputLayout Transformer::RunAttention(const BatchView& batch, const LayerWeights& layer, const LayerConfig& shape,
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
  attend.out_layout = LastInputLayout(*layer.attention_output, layer.attention_output_has_rows, batch.num_tokens);
  attend.num_heads = config_.num_heads;
  attend.scale = config_.attention_scale;
  attend.window = shape.window;
  attend.layout = &layout;
  attend.kv_pool = kv_pool;
  attend.softcap = config_.attention_softcap;
  attend.sinks = layer.sinks.floats();
  backend_->Attention(attend);
  return attend.out_layout;
}

InputLayout Transformer::RunMlp(const LayerWeights& layer, int num_tokens) {
  GatedLinearArgs widen{};
  widen.x = BlockInput(config_.is_parallel ? layer.input_norm : layer.mlp_norm, num_tokens, *layer.gate_up);
  widen.x_layout = BlockInputLayout(*layer.gate_up, num_tokens);
  if (!config_.has_gate()) {
    RunPlainMlp(layer, widen.x, widen.x_layout, num_tokens);
    return InputLayout::kRows;
  }
  if (widen.x_layout != InputLayout::kRows) {
    widen.y_layout = LastInputLayout(*layer.down, layer.down_has_rows, num_tokens);
  }
  widen.w = layer.gate_up.get();
  widen.bias = layer.gate_up_bias.floats();
  widen.y = gated_.get();
  widen.y_type = backend_->InputType(*layer.down);
  widen.num_tokens = num_tokens;
  widen.activation = config_.activation;
  backend_->GatedLinear(widen);
  return widen.y_layout;
}

void Transformer::RunPlainMlp(const LayerWeights& layer, const void* x, InputLayout x_layout, int num_tokens) {
  LinearArgs widen{};
  widen.x = x;
  widen.x_layout = x_layout;
  widen.w = layer.gate_up.get();
  widen.bias = layer.gate_up_bias.floats();
  widen.y = wide_.get();
  widen.num_tokens = num_tokens;
  widen.y_type = backend_->ActivationType();
  backend_->Linear(widen);
  backend_->Activate({.x = wide_.get(),
                      .y = gated_.get(),
                      .num_rows = num_tokens,
                      .dim = config_.intermediate_size,
                      .y_type = backend_->InputType(*layer.down),
                      .activation = *config_.plain_activation,
                      .xielu = layer.xielu});
}

const void* Transformer::RunSharedExpert(const LayerWeights& layer, const void* x, int num_tokens) {
  const DataType type = backend_->InputType(*layer.gate_up);
  if (type != backend_->ActivationType()) {
    backend_->Round(x, num_tokens, config_.hidden_size, type, shared_input_.get());
    x = shared_input_.get();
  }
  GatedLinearArgs widen{};
  widen.x = x;
  widen.w = layer.gate_up.get();
  widen.y = gated_.get();
  widen.y_type = backend_->InputType(*layer.down);
  widen.num_tokens = num_tokens;
  widen.activation = config_.activation;
  backend_->GatedLinear(widen);
  LinearArgs narrow{};
  narrow.x = gated_.get();
  narrow.w = layer.down.get();
  narrow.y = shared_output_.get();
  narrow.y_type = backend_->ActivationType();
  narrow.num_tokens = num_tokens;
  backend_->Linear(narrow);
  return shared_output_.get();
}

// The router and the experts read the same input in float32. ExpertMlp rounds it.
void Transformer::RunExperts(const LayerWeights& layer, int num_tokens) {
  const RouterRule& rule = config_.moe.router;
  LinearArgs score{};
  score.x = BlockInput(layer.mlp_norm, num_tokens, *layer.router);
  score.x_layout = BlockInputLayout(*layer.router, num_tokens);
  score.w = layer.router.get();
  score.bias = layer.router_bias.floats();
  score.y = router_logits_.get();
  score.num_tokens = num_tokens;
  backend_->Linear(score);

  auto* const experts = static_cast<int32_t*>(chosen_experts_.get());
  auto* const weights = static_cast<float*>(expert_weights_.get());
  RouteArgs route{};
  route.rule = rule;
  route.rule.scale *= config_.residual_scale;
  route.logits = router_logits_.floats();
  route.num_logits = config_.moe.num_logits();
  route.choice_bias = layer.choice_bias.floats();
  route.num_tokens = num_tokens;
  route.experts = experts;
  route.weights = weights;
  if (config_.moe.has_shared_gate()) route.shared_weights = static_cast<float*>(shared_weights_.get());
  backend_->Route(route);

  const bool norms_output = config_.norms != NormPlacement::kBefore;
  ExpertMlpArgs run{};
  run.x = static_cast<const float*>(score.x);
  run.w = layer.experts.data();
  run.num_experts = rule.num_experts;
  run.top_k = rule.top_k;
  run.experts = experts;
  run.weights = weights;
  if (layer.down != nullptr) run.shared = RunSharedExpert(layer, score.x, num_tokens);
  run.shared_weights = route.shared_weights;
  run.residual = norms_output ? nullptr : hidden_.get();
  run.y = norms_output ? block_output_.get() : hidden_.get();
  run.num_tokens = num_tokens;
  run.activation = config_.activation;
  if (has_ranks()) {
    const IndexRange own = OwnExperts(config_);
    AddPartsArgs add = AddSums(group_, num_tokens);
    add.shared = std::exchange(run.shared, nullptr);
    add.shared_weights = std::exchange(run.shared_weights, nullptr);
    run.first_expert = own.begin;
    run.end_expert = own.end;
    run.residual = nullptr;
    run.y = sums_.get();
    backend_->ExpertMlp(run);
    backend_->AddParts(add);
  } else {
    backend_->ExpertMlp(run);
  }
  if (norms_output) AddNormedOutput(layer.mlp_output_norm, num_tokens);
}

RmsNormArgs Transformer::NormOf(const void* x, const BackendBuffer& weight, int num_rows, void* y) const {
  RmsNormArgs args{};
  args.x = x;
  args.weight = weight.floats();
  args.y = y;
  args.num_rows = num_rows;
  args.dim = config_.hidden_size;
  args.epsilon = config_.rms_norm_eps;
  args.y_type = backend_->ActivationType();
  return args;
}

void Transformer::Normalize(const void* x, const BackendBuffer& weight, int num_rows, const PackedMatrix& consumer,
                            void* y) {
  RmsNormArgs args = NormOf(x, weight, num_rows, y);
  args.y_type = backend_->InputType(consumer);
  args.y_layout = backend_->InputLayoutOf(consumer, num_rows);
  args.subtracts_mean = config_.norms_subtract_mean;
  backend_->RmsNorm(args);
}

}  // namespace quire
