// SPDX-License-Identifier: Apache-2.0

#include "worker/model/layer_reader.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr int64_t kMaxLayerNumber = 1024;
constexpr int64_t kMaxWindow = 1 << 24;

// Sets the layers that do not rotate. no_rope_layers has a 0 for each of them; without it every
// no_rope_layer_interval-th layer is one.
absl::Status ReadRotations(const JsonFields& fields, ModelConfig* config) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t interval, fields.Int("no_rope_layer_interval", 1, kMaxLayerNumber, 4));
  const json* flags = fields.Find("no_rope_layers");
  const std::string allowed = absl::StrCat("an array of at least ", config->num_layers, " times 0 or 1");
  if (flags != nullptr && (!flags->is_array() || flags->size() < config->layers.size())) {
    return fields.Bad("no_rope_layers", allowed);
  }
  for (int i = 0; i < config->num_layers; ++i) {
    const bool rotates = flags == nullptr ? (i + 1) % interval != 0 : (*flags)[i] == 1;
    if (flags != nullptr && !rotates && (*flags)[i] != 0) return fields.Bad("no_rope_layers", allowed);
    if (!rotates) config->layers[i].rope = LayerRope::kNone;
  }
  return absl::OkStatus();
}

// Returns which layers slide: as layer_types says, or without this field as in the family's pattern.
absl::StatusOr<std::vector<bool>> ReadSlidingLayers(const JsonFields& fields, const DecoderFamily& family,
                                                    const ModelConfig& config) {
  std::vector<bool> slides(config.num_layers, true);
  if (family.windows == WindowPattern::kUniform) return slides;
  if (const json* const found = fields.Find("layer_types"); found != nullptr) {
    const json& types = *found;
    const std::string allowed =
        absl::StrCat("an array of ", config.num_layers, " times full_attention or sliding_attention");
    if (!types.is_array() || types.size() != slides.size()) return fields.Bad("layer_types", allowed);
    for (int i = 0; i < config.num_layers; ++i) {
      slides[i] = types[i] == "sliding_attention";
      if (!slides[i] && types[i] != "full_attention") return fields.Bad("layer_types", allowed);
    }
    return slides;
  }
  int64_t first = 0, period = family.window_period;
  if (family.windows == WindowPattern::kFromAFirstLayer || family.windows == WindowPattern::kEvenToALast) {
    QUIRE_ASSIGN_OR_RETURN(first, fields.Int("max_window_layers", 0, kMaxLayerNumber, family.first_window_layer));
  }
  if (family.window_period_field != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(period, fields.Int(family.window_period_field, 1, kMaxLayerNumber, period));
  }
  for (int i = 0; i < config.num_layers; ++i) {
    if (family.windows == WindowPattern::kUnrotated) slides[i] = config.layers[i].rope == LayerRope::kNone;
    if (family.windows == WindowPattern::kFromAFirstLayer) slides[i] = i >= first;
    if (family.windows == WindowPattern::kEvenToALast) slides[i] = i % 2 == 0 && i < first;
    if (family.windows == WindowPattern::kAllButEveryNth) slides[i] = period == 0 || (i + 1) % period != 0;
  }
  return slides;
}

absl::Status ReadWindows(const JsonFields& fields, const DecoderFamily& family, ModelConfig* config) {
  if (family.windows == WindowPattern::kNone) return absl::OkStatus();
  bool uses_window = true;
  if (family.has_window_switch) {
    QUIRE_ASSIGN_OR_RETURN(uses_window, fields.Bool("use_sliding_window", false));
  }
  if (fields.IsNull("sliding_window") || (family.window == 0 && !fields.Has("sliding_window"))) uses_window = false;
  int64_t window = 0;
  if (uses_window) {
    QUIRE_ASSIGN_OR_RETURN(window, fields.Int("sliding_window", 1, kMaxWindow, family.window));
  }
  if (!uses_window && family.window_rope_theta == 0) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<bool> slides, ReadSlidingLayers(fields, family, *config));
  for (int i = 0; i < config->num_layers; ++i) {
    if (!slides[i]) continue;
    config->layers[i].window = static_cast<int>(window);
    if (family.window_rope_theta > 0) config->layers[i].rope = LayerRope::kWindow;
  }
  return absl::OkStatus();
}

void StopRotationsWithoutWindow(const JsonFields& fields, const DecoderFamily& family, ModelConfig* config) {
  const bool stops = family.unrotated == UnrotatedLayers::kWithoutWindow ||
                     (family.unrotated == UnrotatedLayers::kFullBesideWindows && !fields.IsNull("sliding_window"));
  if (!stops) return;
  for (LayerConfig& layer : config->layers) {
    if (layer.window == 0) layer.rope = LayerRope::kNone;
  }
}

}  // namespace

absl::Status ReadLayers(const JsonFields& fields, const DecoderFamily& family, bool is_long, ModelConfig* config) {
  config->layers.assign(config->num_layers, LayerConfig());
  MakeOneCacheGroup(config);
  if (family.unrotated == UnrotatedLayers::kListed) {
    QUIRE_RETURN_IF_ERROR(ReadRotations(fields, config));
  }
  QUIRE_RETURN_IF_ERROR(ReadWindows(fields, family, config));
  StopRotationsWithoutWindow(fields, family, config);
  const RopeShape shape = {.head_dim = config->head_dim,
                           .max_position_embeddings = config->max_position_embeddings,
                           .default_theta = family.rope_theta,
                           .default_rope = family.rope,
                           .rotates_parts = family.rotates_parts,
                           .default_part = family.rotary_part,
                           .has_sections = family.has_sections,
                           .has_ntk_alpha = family.has_ntk_alpha,
                           .has_query_growth = family.has_query_growth,
                           .original_positions = family.original_positions,
                           .has_window_rope = family.window_rope_theta > 0,
                           .window_theta_field = family.window_theta_field,
                           .is_long = is_long};
  QUIRE_ASSIGN_OR_RETURN(config->rope, ReadRopeConfig(fields, shape));
  if (config->rope.type == RopeType::kLongRope && !is_long) {
    config->max_position_embeddings =
        std::min(config->max_position_embeddings, config->rope.original_max_position_embeddings);
  }
  if (family.window_rope_theta > 0) {
    RopeShape window_shape = shape;
    window_shape.default_theta = family.window_rope_theta;
    QUIRE_ASSIGN_OR_RETURN(config->window_rope, ReadWindowRopeConfig(fields, window_shape));
  }
  return absl::OkStatus();
}

}  // namespace quire
