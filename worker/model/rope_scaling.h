// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_ROPE_SCALING_H_
#define QUIRE_WORKER_MODEL_ROPE_SCALING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/json_reader.h"

namespace quire {

// How the rotary embedding is scaled to contexts that are longer than those in training.
enum class RopeType {
  kDefault,  // No scaling.
  kLinear,   // Positions are divided by `factor`.
  kLlama3,   // Long wavelengths are stretched by `factor`, with a linear blend between two bounds (Llama 3.1).
  kYarn,     // Peng et al., "YaRN", arXiv 2309.00071, section 3.
  // The frequencies of transformers are the same as kDefault up to max_position_embeddings tokens, which is the longest
  // context that is served.
  kDynamic,
  // Ding et al., "LongRoPE", arXiv 2402.13753. Every frequency is divided by a factor of its own. Transformers takes
  // other factors when a sequence gets longer than the original context, which makes K in the cache wrong, and computes
  // it again. Quire decides when it reads the file, for all sequences: either the short factors, and the context is the
  // original one, or the long factors and the whole context.
  kLongRope,
};

const char* Name(RopeType type);

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  int original_max_position_embeddings = 0;  // For llama3, yarn and longrope.
  double low_freq_factor = 1.0;              // For llama3.
  double high_freq_factor = 4.0;             // For llama3.
  double beta_fast = 32.0;                   // For yarn.
  double beta_slow = 1.0;                    // For yarn.
  double attention_factor = 1.0;             // Multiplies cos and sin. It is 1 except for yarn and longrope.
  bool truncate = true;      // With yarn, it says whether to round the ends of the ramp to whole dimensions.
  double rotary_part = 1.0;  // The part of the dimensions of a head that rotate: the first ones.
  std::vector<double> length_factors = {};  // For longrope: [rotary_dim / 2].
  double query_growth = 0;  // RopeAppendArgs::query_growth; its span is original_max_position_embeddings.
};

// What the reader must know of the model.
struct RopeShape {
  int head_dim;
  int max_position_embeddings;
  double default_theta = 10000.0;
  const char* default_rope = nullptr;  // The rope object of a file that has none, in JSON; null: an empty one.
  bool rotates_parts = false;          // Whether partial_rotary_factor may be below 1.
  double default_part = 1.0;           // The default of partial_rotary_factor.
  bool has_sections = false;           // Whether the type may be mrope, which for text alone is default.
  bool has_ntk_alpha = false;          // Whether alpha has an effect in the type dynamic.
  bool has_query_growth = false;       // Whether llama_4_scaling_beta has an effect.
  int original_positions = 0;          // The default of original_max_position_embeddings; 0: max_position_embeddings.
  bool has_window_rope = false;        // Layers with a window have a rope object of their own.
  const char* window_theta_field = nullptr;  // Outside of that object; null: there is none.
  bool is_long = false;                      // With longrope, it says whether to take the long factors.
};

// Returns the number of dimensions of a head that rotate.
int RotaryDim(const RopeConfig& rope, int head_dim);

// Reads `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (earlier versions) from config.json. The
// supported values of `rope_type` are default, linear, llama3, yarn, dynamic and longrope.
absl::StatusOr<RopeConfig> ReadRopeConfig(const JsonFields& config, const RopeShape& shape);

// Reads the rotary embedding of layers with a sliding window, where it is another one: `sliding_attention` in
// `rope_parameters`, or `rope_local_base_freq` in earlier versions.
absl::StatusOr<RopeConfig> ReadWindowRopeConfig(const JsonFields& config, const RopeShape& shape);

// Returns the rotation per position in radians, [rotary_dim / 2], including the scaling. It is computed in float32 in
// the same order of operations as in Hugging Face transformers, so that both agree at large positions.
std::vector<float> InverseFrequencies(const RopeConfig& rope, int rotary_dim);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_ROPE_SCALING_H_
