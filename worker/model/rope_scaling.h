#ifndef QUIRE_WORKER_MODEL_ROPE_SCALING_H_
#define QUIRE_WORKER_MODEL_ROPE_SCALING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/json_reader.h"

namespace quire {

// How the rotary embedding stretches to contexts longer than those of its training.
enum class RopeType {
  kDefault,  // Unscaled.
  kLinear,   // Positions divided by `factor`.
  kLlama3,   // Long wavelengths divided by `factor`, a linear blend between two bounds (Llama 3.1).
  kYarn,     // Peng et al., "YaRN", arXiv 2309.00071, section 3.
};

const char* Name(RopeType type);

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  int original_max_position_embeddings = 0;  // llama3 and yarn.
  double low_freq_factor = 1.0;              // llama3.
  double high_freq_factor = 4.0;             // llama3.
  double beta_fast = 32.0;                   // yarn.
  double beta_slow = 1.0;                    // yarn.
  double attention_factor = 1.0;             // On cos and sin; not 1 only for yarn.
  bool truncate = true;                      // yarn: round the ramp's ends to whole dimensions.
};

// Reads `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before) of a config.json.
// `rope_type` default, linear, llama3 and yarn are known; dynamic and longrope are refused, because their frequencies
// depend on the length a sequence will reach, so that a cached K would change under its block.
absl::StatusOr<RopeConfig> ReadRopeConfig(const JsonFields& config, int max_position_embeddings);

// Rotation per position in radians, [rotary_dim / 2], with the scaling applied. In float32 in the order of operations
// of Hugging Face transformers, so that long positions agree.
std::vector<float> InverseFrequencies(const RopeConfig& rope, int rotary_dim);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_ROPE_SCALING_H_
