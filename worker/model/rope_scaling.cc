// SPDX-License-Identifier: Apache-2.0

#include "worker/model/rope_scaling.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kMaxFactor = 1024.0;

absl::StatusOr<RopeType> ReadType(const JsonFields& fields, const RopeShape& shape) {
  const char* key = fields.Has("rope_type") ? "rope_type" : "type";  // Named "type" until transformers 4.43.
  QUIRE_ASSIGN_OR_RETURN(const std::string type, fields.String(key, "default"));
  if (type == "default" || (type == "mrope" && shape.has_sections)) return RopeType::kDefault;
  if (type == "linear") return RopeType::kLinear;
  if (type == "llama3") return RopeType::kLlama3;
  // The first files of Phi-3 have other names for longrope.
  if (type == "longrope" || type == "su") return RopeType::kLongRope;
  if (type == "yarn") return fields.Has("short_factor") ? RopeType::kLongRope : RopeType::kYarn;
  if (type == "dynamic") return RopeType::kDynamic;
  return fields.Bad(key, "default, linear, llama3, yarn, dynamic or longrope");
}

absl::Status ReadLlama3(const JsonFields& fields, RopeConfig* rope) {
  QUIRE_ASSIGN_OR_RETURN(rope->low_freq_factor, fields.Number("low_freq_factor", 1e-3, kMaxFactor));
  QUIRE_ASSIGN_OR_RETURN(rope->high_freq_factor, fields.Number("high_freq_factor", 1e-3, kMaxFactor));
  if (rope->high_freq_factor <= rope->low_freq_factor) {
    return fields.Bad("high_freq_factor", absl::StrCat("above low_freq_factor, ", rope->low_freq_factor));
  }
  return absl::OkStatus();
}

double YarnScale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

absl::Status ReadYarn(const JsonFields& fields, RopeConfig* rope) {
  QUIRE_ASSIGN_OR_RETURN(rope->beta_fast, fields.Number("beta_fast", 1e-3, 1e6, 32.0));
  QUIRE_ASSIGN_OR_RETURN(rope->beta_slow, fields.Number("beta_slow", 1e-3, 1e6, 1.0));
  QUIRE_ASSIGN_OR_RETURN(rope->truncate, fields.Bool("truncate", true));
  QUIRE_ASSIGN_OR_RETURN(const double mscale, fields.Number("mscale", 0, 1e3, 0.0));
  QUIRE_ASSIGN_OR_RETURN(const double mscale_all_dim, fields.Number("mscale_all_dim", 0, 1e3, 0.0));
  const bool both = mscale != 0 && mscale_all_dim != 0;
  const double scale =
      both ? YarnScale(rope->factor, mscale) / YarnScale(rope->factor, mscale_all_dim) : YarnScale(rope->factor, 1.0);
  QUIRE_ASSIGN_OR_RETURN(rope->attention_factor, fields.Number("attention_factor", 1e-3, 1e3, scale));
  return absl::OkStatus();
}

absl::Status ReadLongRope(const JsonFields& fields, const RopeShape& shape, RopeConfig* rope) {
  const int count = RotaryDim(*rope, shape.head_dim) / 2;
  QUIRE_ASSIGN_OR_RETURN(rope->length_factors,
                         fields.Numbers(shape.is_long ? "long_factor" : "short_factor", 1e-3, kMaxFactor, count));
  const double original = rope->original_max_position_embeddings;
  QUIRE_ASSIGN_OR_RETURN(rope->factor, fields.Number("factor", 1e-3, 1e6, shape.max_position_embeddings / original));
  // As in transformers, except that an original context of 1, whose logarithm is 0, gives no scale.
  const double scale =
      rope->factor <= 1 || original <= 1 ? 1 : std::sqrt(1 + std::log(rope->factor) / std::log(original));
  QUIRE_ASSIGN_OR_RETURN(rope->attention_factor, fields.Number("attention_factor", 1e-3, 1e3, scale));
  return absl::OkStatus();
}

// `owner` has the field, in the rope object or outside of it.
absl::Status ReadRotaryPart(const JsonFields& owner, const RopeShape& shape, RopeConfig* rope) {
  constexpr const char* kField = "partial_rotary_factor";
  QUIRE_ASSIGN_OR_RETURN(rope->rotary_part, owner.Number(kField, 0, 1, shape.default_part));
  if (rope->rotary_part == 1.0) return absl::OkStatus();
  if (!shape.rotates_parts) return owner.Bad(kField, "1: every dimension of a head rotates");
  const int dim = RotaryDim(*rope, shape.head_dim);
  if (dim >= 2 && dim % 2 == 0) return absl::OkStatus();
  return owner.Bad(kField, absl::StrCat("such that an even number of the ", shape.head_dim, " dimensions rotates"));
}

// The span of the growth is the original context, whatever the type is.
absl::Status ReadQueryGrowth(const JsonFields& fields, const RopeShape& shape, RopeConfig* rope) {
  if (!shape.has_query_growth) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(rope->query_growth, fields.Number("llama_4_scaling_beta", 0, 100, 0.0));
  if (rope->query_growth == 0) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const int64_t span, fields.Int("original_max_position_embeddings", 1, int64_t{1} << 24));
  rope->original_max_position_embeddings = static_cast<int>(span);
  return absl::OkStatus();
}

// `config` is the whole file, and `fields` is its rope object.
absl::StatusOr<RopeConfig> ReadRope(const JsonFields& config, const JsonFields& fields, double theta,
                                    const RopeShape& shape) {
  RopeConfig rope;
  rope.theta = theta;
  QUIRE_ASSIGN_OR_RETURN(rope.type, ReadType(fields, shape));
  QUIRE_RETURN_IF_ERROR(
      ReadRotaryPart(shape.rotates_parts && !fields.Has("partial_rotary_factor") ? config : fields, shape, &rope));
  QUIRE_RETURN_IF_ERROR(ReadQueryGrowth(fields, shape, &rope));
  if (rope.type == RopeType::kDefault) return rope;
  if (rope.type == RopeType::kDynamic && shape.has_ntk_alpha && fields.Has("alpha")) {
    QUIRE_ASSIGN_OR_RETURN(const double alpha, fields.Number("alpha", 1.0, 1e6));
    rope.type = RopeType::kDefault;
    rope.theta *= std::pow(alpha, shape.head_dim / std::max(shape.head_dim - 2.0, 1.0));
    return rope;
  }
  if (rope.type != RopeType::kLongRope) {
    QUIRE_ASSIGN_OR_RETURN(rope.factor, fields.Number("factor", 1.0, kMaxFactor));
  }
  if (rope.type == RopeType::kLinear || rope.type == RopeType::kDynamic) return rope;
  constexpr const char* kOriginal = "original_max_position_embeddings";
  // As in Transformers: where the family has the field outside of the rope object, that one counts, and elsewhere that
  // inside.
  const JsonFields& owner = shape.original_positions > 0 ? config : fields;
  const int64_t default_original =
      shape.original_positions > 0 ? shape.original_positions : shape.max_position_embeddings;
  QUIRE_ASSIGN_OR_RETURN(const int64_t original, owner.Int(kOriginal, 1, int64_t{1} << 24, default_original));
  rope.original_max_position_embeddings = static_cast<int>(original);
  if (rope.type == RopeType::kLlama3) {
    QUIRE_RETURN_IF_ERROR(ReadLlama3(fields, &rope));
  } else if (rope.type == RopeType::kLongRope) {
    QUIRE_RETURN_IF_ERROR(ReadLongRope(fields, shape, &rope));
  } else {
    QUIRE_RETURN_IF_ERROR(ReadYarn(fields, &rope));
  }
  return rope;
}

// Reads the rope object at `path`. Outside of it, the base is in `theta_field`, unless that is null.
absl::StatusOr<RopeConfig> ReadRopeOf(const JsonFields& config, const nlohmann::json& object, const std::string& path,
                                      const char* theta_field, const RopeShape& shape) {
  const JsonFields fields = config.Inner(object, path);
  constexpr double kMinTheta = 1.5;  // Above 1, because a formula divides by the logarithm.
  constexpr double kMaxTheta = 1e12;
  const bool is_inside = theta_field == nullptr || fields.Has("rope_theta");
  QUIRE_ASSIGN_OR_RETURN(const double theta, (is_inside ? fields : config)
                                                 .Number(is_inside ? "rope_theta" : theta_field, kMinTheta, kMaxTheta,
                                                         shape.default_theta));
  return ReadRope(config, fields, theta, shape);
}

// Returns 1 / theta^(2i / rotary_dim).
float BaseFrequency(double theta, int i, int rotary_dim) {
  return 1.0f / std::pow(static_cast<float>(theta), static_cast<float>(2 * i) / static_cast<float>(rotary_dim));
}

float Llama3Frequency(const RopeConfig& rope, float frequency) {
  const float factor = static_cast<float>(rope.factor);
  const float context = static_cast<float>(rope.original_max_position_embeddings);
  const float low = static_cast<float>(rope.low_freq_factor);
  const float high = static_cast<float>(rope.high_freq_factor);
  const float wavelength = static_cast<float>(2.0 * kPi) / frequency;
  if (wavelength < context / high) return frequency;
  if (wavelength > context / low) return frequency / factor;
  const float smooth = (context / wavelength - low) / (high - low);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

// Returns the index of the pair of dimensions that rotates `rotations` times within the original context.
double YarnDimension(const RopeConfig& rope, double rotations, int rotary_dim) {
  return rotary_dim * std::log(rope.original_max_position_embeddings / (rotations * 2.0 * kPi)) /
         (2.0 * std::log(rope.theta));
}

void ScaleYarn(const RopeConfig& rope, int rotary_dim, std::vector<float>* frequencies) {
  double low = YarnDimension(rope, rope.beta_fast, rotary_dim);
  double high = YarnDimension(rope, rope.beta_slow, rotary_dim);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies->size(); ++i) {
    // 1 for a dimension that rotates slowly and is interpolated, 0 for one whose frequency does not change.
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    const float speed = (*frequencies)[i];
    const float interpolated = 1.0f / (static_cast<float>(rope.factor) * (1.0f / speed));
    (*frequencies)[i] = interpolated * (1.0f - keep) + speed * keep;
  }
}

}  // namespace

const char* Name(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
    case RopeType::kDynamic:
      return "dynamic";
    case RopeType::kLongRope:
      return "longrope";
  }
  return "unknown";
}

int RotaryDim(const RopeConfig& rope, int head_dim) {
  return static_cast<int>(head_dim * rope.rotary_part);
}

absl::StatusOr<RopeConfig> ReadRopeConfig(const JsonFields& config, const RopeShape& shape) {
  // The older name wins, as in Transformers, which replaces the whole object. Where there are objects for types of
  // layers, it replaces members of that for layers without a window.
  std::string path = "rope_scaling";
  QUIRE_ASSIGN_OR_RETURN(const nlohmann::json* object, config.Object(path.c_str()));
  if (object == nullptr || object->empty()) {
    path = "rope_parameters";
    QUIRE_ASSIGN_OR_RETURN(object, config.Object(path.c_str()));
  }
  const nlohmann::json none =
      shape.default_rope == nullptr ? nlohmann::json::object() : nlohmann::json::parse(shape.default_rope);
  if (object == nullptr) object = &none;
  // Some models have one object for each type of layers.
  constexpr const char* kFull = "full_attention";
  nlohmann::json merged;
  if (shape.has_window_rope && path == "rope_scaling" && !object->contains(kFull)) {
    QUIRE_ASSIGN_OR_RETURN(const nlohmann::json* newer, config.Object("rope_parameters"));
    if (newer != nullptr && newer->contains(kFull) && (*newer)[kFull].is_object()) {
      merged = (*newer)[kFull];
      merged.update(*object);
      object = &merged;
    }
  }
  if (object->contains(kFull)) {
    if (!shape.has_window_rope) return config.Bad(path.c_str(), "one object for all layers");
    QUIRE_ASSIGN_OR_RETURN(object, config.Inner(*object, path).Object(kFull));
    if (object == nullptr) object = &none;
    absl::StrAppend(&path, ".", kFull);
  }
  return ReadRopeOf(config, *object, path, "rope_theta", shape);
}

absl::StatusOr<RopeConfig> ReadWindowRopeConfig(const JsonFields& config, const RopeShape& shape) {
  QUIRE_ASSIGN_OR_RETURN(const nlohmann::json* object, config.Object("rope_parameters"));
  const nlohmann::json none = nlohmann::json::object();
  constexpr const char* kSliding = "sliding_attention";
  if (object != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(object, config.Inner(*object, "rope_parameters").Object(kSliding));
  }
  return ReadRopeOf(config, object == nullptr ? none : *object, absl::StrCat("rope_parameters.", kSliding),
                    shape.window_theta_field, shape);
}

std::vector<float> InverseFrequencies(const RopeConfig& rope, int rotary_dim) {
  std::vector<float> frequencies(rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float base = BaseFrequency(rope.theta, static_cast<int>(i), rotary_dim);
    if (rope.type == RopeType::kLongRope) {
      frequencies[i] = base / static_cast<float>(rope.length_factors[i]);
      continue;
    }
    frequencies[i] = rope.type == RopeType::kLinear   ? base / static_cast<float>(rope.factor)
                     : rope.type == RopeType::kLlama3 ? Llama3Frequency(rope, base)
                                                      : base;
  }
  if (rope.type == RopeType::kYarn) ScaleYarn(rope, rotary_dim, &frequencies);
  return frequencies;
}

}  // namespace quire
