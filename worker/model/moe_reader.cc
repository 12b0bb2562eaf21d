// SPDX-License-Identifier: Apache-2.0

#include "worker/model/moe_reader.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/ceil_div.h"

namespace quire {
namespace {

// These limits are far above every published model.
constexpr int64_t kMaxExpertWidth = 1 << 20;
constexpr int64_t kMaxMoeLayer = 1024;

constexpr double kMaxRouterScale = 1e6;
constexpr int64_t kMaxExpertsOfOthers = 1 << 20;

// The names of the field with the number of experts.
constexpr const char* kNumExperts[] = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"};

// Reads the number of experts. Returns `fallback` without the field. Two names with different numbers are an error.
absl::StatusOr<int64_t> ReadNumExperts(const JsonFields& fields, int64_t fallback) {
  const char* found = nullptr;
  int64_t number = fallback;
  for (const char* name : kNumExperts) {
    if (!fields.Has(name)) continue;
    QUIRE_ASSIGN_OR_RETURN(const int64_t value, fields.Int(name, 1, kMaxMoeExperts));
    if (found != nullptr && value != number) {
      return fields.Bad(name, absl::StrCat(number, ", because ", found, " is ", number));
    }
    found = name;
    number = value;
  }
  return number;
}

absl::Status ReadSparseSteps(const JsonFields& fields, ModelConfig* config) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t step, fields.Int("decoder_sparse_step", 1, kMaxMoeLayer, 1));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> dense, fields.Ints("mlp_only_layers", 0, kMaxMoeLayer));
  for (int i = 0; i < config->num_layers; ++i) {
    config->layers[i].is_moe = (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
  }
  return absl::OkStatus();
}

absl::Status ReadFirstLayer(const JsonFields& fields, const MoeFamily& family, ModelConfig* config) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t first, fields.Int("first_k_dense_replace", 0, kMaxMoeLayer, family.first_layer));
  for (int i = 0; i < config->num_layers; ++i) config->layers[i].is_moe = i >= first;
  return absl::OkStatus();
}

absl::Status ReadMoeLayers(const JsonFields& fields, const MoeFamily& family, ModelConfig* config) {
  switch (family.layers) {
    case MoeLayers::kAll:
      for (LayerConfig& layer : config->layers) layer.is_moe = true;
      break;
    case MoeLayers::kSparseSteps:
      return ReadSparseSteps(fields, config);
    case MoeLayers::kFromAFirstLayer:
      return ReadFirstLayer(fields, family, config);
  }
  return absl::OkStatus();
}

absl::Status ReadGroups(const JsonFields& fields, RouterRule* rule) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t num_groups, fields.Int("n_group", 1, rule->num_experts, 1));
  const int64_t size = rule->num_experts / num_groups;
  if (num_groups > 1 && (rule->num_experts % num_groups != 0 || size < 2)) {
    return fields.Bad("n_group", absl::StrCat("a divisor of the number of experts, ", rule->num_experts,
                                              ", that leaves two or more in a group"));
  }
  QUIRE_ASSIGN_OR_RETURN(const int64_t top_groups, fields.Int("topk_group", 1, num_groups, 1));
  if (size * top_groups < rule->top_k) {
    return fields.Bad("topk_group",
                      absl::StrCat("at least ", CeilDiv<int64_t>(rule->top_k, size), ", because a token uses ",
                                   rule->top_k, " of ", rule->num_experts, " experts"));
  }
  rule->num_groups = static_cast<int>(num_groups);
  rule->top_groups = static_cast<int>(top_groups);
  return absl::OkStatus();
}

absl::Status ReadRouter(const JsonFields& fields, const MoeFamily& family, RouterRule* rule) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t num_experts, ReadNumExperts(fields, family.num_experts));
  rule->num_experts = static_cast<int>(num_experts);
  const int64_t fallback = std::min<int64_t>(family.top_k, num_experts);
  QUIRE_ASSIGN_OR_RETURN(const int64_t top_k, fields.Int("num_experts_per_tok", 1, num_experts, fallback));
  rule->top_k = static_cast<int>(top_k);
  rule->score = family.score;
  rule->normalizes = family.normalizes;
  if (family.normalizes_field != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(rule->normalizes, fields.Bool(family.normalizes_field, family.normalizes));
  }
  rule->added_to_sum = family.added_to_sum;
  if (family.has_scale) {
    QUIRE_ASSIGN_OR_RETURN(const double scale,
                           fields.Number("routed_scaling_factor", 1 / kMaxRouterScale, kMaxRouterScale, 1));
    rule->scale = static_cast<float>(scale);
  }
  return family.has_groups ? ReadGroups(fields, rule) : absl::OkStatus();
}

absl::Status ReadSharedExpert(const JsonFields& fields, const MoeFamily& family, MoeConfig* moe) {
  if (family.shared_width_field != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t width,
                           fields.Int(family.shared_width_field, 1, kMaxExpertWidth, family.shared_width));
    moe->shared_width = static_cast<int>(width);
  }
  if (family.shared_count_field != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t count,
                           fields.Int(family.shared_count_field, 0, kMaxMoeExperts, family.shared_count));
    if (count * moe->width > kMaxExpertWidth) {
      return fields.Bad(family.shared_count_field, absl::StrCat("at most ", kMaxExpertWidth / moe->width));
    }
    moe->shared_width = static_cast<int>(count) * moe->width;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNoExperts(const JsonFields& fields, absl::string_view architecture) {
  for (const char* name : kNumExperts) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t num_experts, fields.Int(name, 0, kMaxExpertsOfOthers, 0));
    if (num_experts <= 1) continue;  // One expert is an MLP.
    return fields.Bad(name, absl::StrCat("at most 1, because ", architecture, " is a model without experts"));
  }
  return absl::OkStatus();
}

absl::Status ReadMoe(const JsonFields& fields, const DecoderFamily& family, ModelConfig* config) {
  MoeConfig& moe = config->moe;
  moe.names = &family.moe->names;
  QUIRE_RETURN_IF_ERROR(ReadRouter(fields, *family.moe, &moe.router));
  moe.width = config->intermediate_size;
  if (family.moe->width_field != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t width,
                           fields.Int(family.moe->width_field, 1, kMaxExpertWidth, family.moe->width));
    moe.width = static_cast<int>(width);
  }
  QUIRE_RETURN_IF_ERROR(ReadSharedExpert(fields, *family.moe, &moe));
  return ReadMoeLayers(fields, *family.moe, config);
}

}  // namespace quire
