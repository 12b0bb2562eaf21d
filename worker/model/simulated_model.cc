// SPDX-License-Identifier: Apache-2.0

#include "worker/model/simulated_model.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fingerprint.h"
#include "base/status.h"
#include "kernels/simulated/backend.h"

namespace quire {
namespace {

using simulated::Matrix;
using simulated::SimulatedBackend;

// One layer with one head.
void SetShape(ModelConfig* config) {
  config->torch_dtype = Name(SimulatedBackend::kKvType);
  config->hidden_size = SimulatedBackend::kHiddenSize;
  config->intermediate_size = 1;
  config->num_layers = 1;
  config->num_heads = 1;
  config->num_kv_heads = 1;
  config->head_dim = SimulatedBackend::kHeadDim;
  config->layers = {LayerConfig()};
  config->moe = MoeConfig();
  config->norms = NormPlacement::kBefore;
  config->qk_norm = QkNorm::kNone;
  config->plain_activation.reset();
  config->norms_subtract_mean = config->is_parallel = false;
  config->embedding_scale = config->residual_scale = config->logit_scale = 1;
  config->attention_softcap = config->logit_softcap = 0;
  config->rope = RopeConfig();
  config->window_rope.reset();
}

// The output of attention passes through the layer and the output matrix to the logits. The other matrices do nothing.
ModelWeights MakeWeights(const ModelConfig& config) {
  Fingerprint fingerprint;
  fingerprint.Add("simulated");
  fingerprint.Add(Summary(config));
  ModelWeights weights;
  weights.fingerprint = fingerprint.Hex();
  weights.embedding = std::make_unique<Matrix>(/*copies=*/true);
  LayerWeights& layer = weights.layers.emplace_back();
  layer.qkv = std::make_unique<Matrix>(/*copies=*/false);
  layer.attention_output = std::make_unique<Matrix>(/*copies=*/true);
  layer.gate_up = std::make_unique<Matrix>(/*copies=*/false);
  layer.down = std::make_unique<Matrix>(/*copies=*/false);
  return weights;
}

}  // namespace

absl::StatusOr<simulated::TokenRule> TokenRuleOf(const ModelConfig& config, int mean_output_tokens) {
  std::vector<TokenId> end_tokens;
  for (const TokenId token : config.eos_token_ids) {
    if (token < config.vocab_size) end_tokens.push_back(token);
  }
  constexpr int kMin = simulated::TokenRule::kMinVocabulary;
  if (config.vocab_size < kMin) {
    return absl::FailedPreconditionError(
        absl::StrCat("vocab_size is ", config.vocab_size, ", with --device=simulated it must be at least ", kMin));
  }
  if (static_cast<int>(end_tokens.size()) > config.vocab_size / 2) {
    return absl::FailedPreconditionError(absl::StrCat("the model has ", end_tokens.size(),
                                                      " end tokens, with --device=simulated the limit is ",
                                                      config.vocab_size / 2, ", half of its vocabulary"));
  }
  return simulated::TokenRule(config.vocab_size, std::move(end_tokens), mean_output_tokens);
}

absl::StatusOr<std::unique_ptr<Model>> ReadSimulatedModel(const std::string& directory, bool is_long) {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, ReadModelFiles(directory, is_long));
  model->weights = MakeWeights(model->config);
  SetShape(&model->config);
  return model;
}

}  // namespace quire
