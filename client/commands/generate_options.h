// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_COMMANDS_GENERATE_OPTIONS_H_
#define QUIRE_CLIENT_COMMANDS_GENERATE_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/sampling_fields.h"
#include "client/commands/guide_options.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// The options of `quirectl generate`. What the user left out stays at the manager's default.
struct GenerateOptions {
  // The request that the options describe. `timeout_s` and `show_usage` are not part of it, and an unset `max_tokens`
  // stays unset in it. A request that may be resumed has a name, which is drawn if the user gave none. Reads standard
  // input when the prompt is "-". INVALID_ARGUMENT when an option or the prompt cannot be used, or when standard input
  // is a pipe or a file that no option reads.
  absl::StatusOr<v1::GenerateRequest> MakeRequest() const;

  // The number of samples or hypotheses that the manager will return.
  uint32_t num_returned() const { return beam_width ? num_return.value_or(1) : num_samples.value_or(1); }
  // Returns true if the manager ranks several answers by their scores.
  bool is_ranked() const { return beam_width.has_value() || best_of.value_or(0) > num_returned(); }

  std::string prompt;
  const CLI::Option* prompt_option = nullptr;  // Tells the prompt "" from a missing prompt.
  std::vector<uint32_t> prompt_ids;
  std::string request_id;
  bool no_resume = false;
  double timeout_s = 600;
  bool echo = false;
  bool show_usage = false;
  bool no_special_tokens = false;
  bool no_parse_special = false;
  bool keep_special_tokens = false;
  std::optional<int32_t> priority;
  std::optional<uint32_t> logprobs;
  std::optional<uint32_t> prompt_logprobs;

  // The value of a field in kSamplingFields. A field that counts tokens uses `count`.
  struct SamplingOption {
    std::optional<float> number;
    std::optional<uint32_t> count;
  };
  std::array<SamplingOption, std::size(kSamplingFields)> sampling;  // In the order of the fields.
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;
  std::vector<uint32_t> allowed_token_ids;
  std::vector<std::string> bad_words;
  GuideOptions guide;

  std::optional<uint32_t> num_samples;
  std::optional<uint32_t> best_of;
  std::optional<uint32_t> beam_width;
  std::optional<float> length_penalty;
  std::string early_stopping;
  std::optional<uint32_t> num_return;
  std::optional<uint32_t> num_groups;
  std::optional<float> diversity_penalty;

  std::string cache_salt;
  bool no_prefix_cache = false;
  std::string tenant;

  std::optional<uint32_t> max_tokens;
  std::optional<uint32_t> min_tokens;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::vector<uint32_t> stop_token_ids;
  bool include_stop = false;
};

// Declares the options on `command`. Both are borrowed; `options` outlives `command`.
void AddGenerateOptions(CLI::App* command, GenerateOptions* options);

}  // namespace quire

#endif  // QUIRE_CLIENT_COMMANDS_GENERATE_OPTIONS_H_
