#include "worker/model/rope_scaling.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kMaxFactor = 1024.0;
constexpr const char* kConfigFile = "config.json";

absl::StatusOr<RopeType> ReadType(const JsonFields& fields) {
  const char* key = fields.Has("rope_type") ? "rope_type" : "type";  // Named "type" until transformers 4.43.
  QUIRE_ASSIGN_OR_RETURN(const std::string type, fields.String(key, "default"));
  if (type == "default") return RopeType::kDefault;
  if (type == "linear") return RopeType::kLinear;
  if (type == "llama3") return RopeType::kLlama3;
  if (type == "yarn") return RopeType::kYarn;
  return fields.Bad(key, "default, linear, llama3 or yarn");
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

// `config` is the whole file, and `fields` is its rope object.
absl::StatusOr<RopeConfig> ReadRope(const JsonFields& config, const JsonFields& fields, double theta,
                                    int max_position_embeddings) {
  RopeConfig rope;
  rope.theta = theta;
  QUIRE_ASSIGN_OR_RETURN(rope.type, ReadType(fields));
  QUIRE_ASSIGN_OR_RETURN(const double rotary_part, fields.Number("partial_rotary_factor", 0, 1, 1.0));
  if (rotary_part != 1.0) return fields.Bad("partial_rotary_factor", "1: every dimension of a head rotates");
  if (rope.type == RopeType::kDefault) return rope;
  QUIRE_ASSIGN_OR_RETURN(rope.factor, fields.Number("factor", 1.0, kMaxFactor));
  if (rope.type == RopeType::kLinear) return rope;
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const JsonFields& owner =
      config.Has(kOriginal) ? config : fields;  // In some files the field is outside of the rope object.
  QUIRE_ASSIGN_OR_RETURN(const int64_t original, owner.Int(kOriginal, 1, int64_t{1} << 24, max_position_embeddings));
  rope.original_max_position_embeddings = static_cast<int>(original);
  if (rope.type == RopeType::kLlama3) {
    QUIRE_RETURN_IF_ERROR(ReadLlama3(fields, &rope));
  } else {
    QUIRE_RETURN_IF_ERROR(ReadYarn(fields, &rope));
  }
  return rope;
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
  }
  return "unknown";
}

absl::StatusOr<RopeConfig> ReadRopeConfig(const JsonFields& config, int max_position_embeddings) {
  const char* key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  QUIRE_ASSIGN_OR_RETURN(const nlohmann::json* object, config.Object(key));
  const nlohmann::json none = nlohmann::json::object();
  const JsonFields fields(object == nullptr ? none : *object, kConfigFile, absl::StrCat(key, "."));
  constexpr double kMinTheta = 1.5;  // It is above 1, because a formula divides by the logarithm.
  constexpr double kMaxTheta = 1e12;
  const JsonFields& owner = fields.Has("rope_theta") ? fields : config;
  QUIRE_ASSIGN_OR_RETURN(const double theta, owner.Number("rope_theta", kMinTheta, kMaxTheta, 10000.0));
  return ReadRope(config, fields, theta, max_position_embeddings);
}

std::vector<float> InverseFrequencies(const RopeConfig& rope, int rotary_dim) {
  std::vector<float> frequencies(rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float base = BaseFrequency(rope.theta, static_cast<int>(i), rotary_dim);
    frequencies[i] = rope.type == RopeType::kLinear   ? base / static_cast<float>(rope.factor)
                     : rope.type == RopeType::kLlama3 ? Llama3Frequency(rope, base)
                                                      : base;
  }
  if (rope.type == RopeType::kYarn) ScaleYarn(rope, rotary_dim, &frequencies);
  return frequencies;
}

}  // namespace quire
