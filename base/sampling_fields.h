// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_SAMPLING_FIELDS_H_
#define QUIRE_BASE_SAMPLING_FIELDS_H_

#include <limits>
#include <string>
#include <type_traits>
#include <variant>

namespace quire {

// The numbers that say how a token is drawn. quire.v1.SamplingParams defines them and the order of their steps. The
// values here change nothing.
struct DrawParams {
  float temperature = 1;
  float top_n_sigma = 0;
  int top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float xtc_probability = 0;
  float xtc_threshold = 0.1f;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;

  bool operator==(const DrawParams&) const = default;
};

// What services and clients know about one of these numbers. The messages of quire.v1 and the gateway's JSON have a
// field of this name, and quirectl has an option.
struct SamplingField {
  const char* name;
  // An int is a number of tokens, from 0 to the size of the vocabulary.
  std::variant<float DrawParams::*, int DrawParams::*> member;
  double low = 0;  // The range of a float.
  double high = 1;
  bool has_low = true;        // The range includes `low`.
  bool is_for_draws = false;  // Whether a beam search has no use for the field.
  // The key in a GGUF file, after "general.sampling.". Empty: models do not recommend a value.
  const char* gguf_key = "";
  bool is_off_at_minus_1 = false;  // For other servers, -1 is a value that changes nothing.
  const char* short_option = "";
  const char* value_text;  // Names the value of the option.
  const char* help;        // Describes the option.

  // Models may recommend a value, in their generation_config.json or GGUF file.
  bool is_recommended() const { return *gguf_key != '\0'; }
  bool counts_tokens() const { return std::holds_alternative<int DrawParams::*>(member); }

  double Of(const DrawParams& params) const {
    return std::visit([&](const auto pointer) { return static_cast<double>(params.*pointer); }, member);
  }
  void Set(double value, DrawParams* params) const {
    std::visit(
        [&](const auto pointer) {
          params->*pointer = static_cast<std::remove_reference_t<decltype(params->*pointer)>>(value);
        },
        member);
  }
  // The value that changes nothing.
  float neutral() const { return static_cast<float>(Of(DrawParams())); }
  // NaN is in no range. REQUIRES: it does not count tokens.
  bool Allows(float value) const {
    const auto least = static_cast<float>(low);
    return (has_low ? value >= least : value > least) && value <= static_cast<float>(high);
  }
  // Returns the range in words, such as "in (0, 1]". REQUIRES: it does not count tokens.
  std::string RangeText() const;
  // Returns the option of quirectl, such as "--top-p".
  std::string OptionName() const;
};

inline constexpr SamplingField kSamplingFields[] = {
    {.name = "temperature",
     .member = &DrawParams::temperature,
     .high = std::numeric_limits<float>::max(),
     .is_for_draws = true,
     .gguf_key = "temp",
     .short_option = "-t",
     .value_text = "T",
     .help = "0 always takes the likeliest token [the model's default or 1]"},
    {.name = "top_n_sigma",
     .member = &DrawParams::top_n_sigma,
     .high = std::numeric_limits<float>::max(),
     .is_for_draws = true,
     .is_off_at_minus_1 = true,
     .value_text = "N",
     .help = "Drop tokens whose logits are more than N standard deviations below the largest [0, which drops none]"},
    {.name = "top_k",
     .member = &DrawParams::top_k,
     .is_for_draws = true,
     .gguf_key = "top_k",
     .is_off_at_minus_1 = true,
     .value_text = "K",
     .help = "Draw from the K likeliest tokens [the model's default or all]"},
    {.name = "top_p",
     .member = &DrawParams::top_p,
     .has_low = false,
     .is_for_draws = true,
     .gguf_key = "top_p",
     .value_text = "P",
     .help = "Draw from the likeliest tokens that together reach this probability [the model's default or 1]"},
    {.name = "min_p",
     .member = &DrawParams::min_p,
     .is_for_draws = true,
     .gguf_key = "min_p",
     .value_text = "P",
     .help = "Drop tokens below this share of the likeliest token's probability [the model's default or 0]"},
    {.name = "xtc_probability",
     .member = &DrawParams::xtc_probability,
     .is_for_draws = true,
     .gguf_key = "xtc_probability",
     .value_text = "P",
     .help = "Chance that a draw drops its top choices but the least likely one [the model's default or 0]"},
    {.name = "xtc_threshold",
     .member = &DrawParams::xtc_threshold,
     .is_for_draws = true,
     .gguf_key = "xtc_threshold",
     .value_text = "P",
     .help = "The top choices are the tokens with at least this probability [the model's default or 0.1]"},
    {.name = "presence_penalty",
     .member = &DrawParams::presence_penalty,
     .low = -2,
     .high = 2,
     .value_text = "X",
     .help = "Lower the logit of every token that was generated before by this, -2 .. 2 [0]"},
    {.name = "frequency_penalty",
     .member = &DrawParams::frequency_penalty,
     .low = -2,
     .high = 2,
     .value_text = "X",
     .help = "Lower the logit by this for each time that the token was generated, -2 .. 2 [0]"},
    {.name = "repetition_penalty",
     .member = &DrawParams::repetition_penalty,
     .low = 0.01,
     .high = 10,
     .gguf_key = "penalty_repeat",
     .value_text = "X",
     .help = "Divide positive logits of tokens that occurred before by this, 0.01 .. 10 [the model's default or 1]"},
};

}  // namespace quire

#endif  // QUIRE_BASE_SAMPLING_FIELDS_H_
