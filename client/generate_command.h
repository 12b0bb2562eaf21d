#ifndef QUIRE_CLIENT_GENERATE_COMMAND_H_
#define QUIRE_CLIENT_GENERATE_COMMAND_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/output.h"

namespace quire {

// `quirectl generate`: one prompt in, text as it comes out.
class GenerateCommand {
 public:
  // Declares the flags on `command`, which is borrowed and outlives this.
  explicit GenerateCommand(CLI::App* command);

  // Sends the request and prints the stream. Returns the exit code. Ctrl-C ends the call, the line and then the
  // process; output that cannot be written ends the call as well. The server frees its blocks either way.
  int Run(const ClientOptions& client_options, OutputFormat format);

 private:
  absl::StatusOr<v1::GenerateRequest> MakeRequest() const;
  // How many tokens to ask for when the user did not say: at least min_tokens, and no more than the context leaves.
  uint32_t DefaultMaxTokens(Client& client, const v1::GenerateRequest& request) const;
  // The parts of MakeRequest.
  absl::Status SetSampling(v1::SamplingParams* sampling) const;
  void SetBeam(v1::BeamParams* beam) const;
  void SetStopping(v1::StoppingParams* stopping) const;

  std::string prompt_;
  std::vector<uint32_t> prompt_ids_;
  std::string request_id_;
  double timeout_s_ = 600;
  bool echo_ = false;
  bool show_usage_ = false;
  bool no_special_tokens_ = false;
  bool keep_special_tokens_ = false;
  std::optional<int32_t> priority_;
  std::optional<uint32_t> logprobs_;
  std::optional<uint32_t> prompt_logprobs_;

  std::optional<float> temperature_;
  std::optional<uint32_t> top_k_;
  std::optional<float> top_p_;
  std::optional<float> min_p_;
  std::optional<float> presence_penalty_;
  std::optional<float> frequency_penalty_;
  std::optional<float> repetition_penalty_;
  std::optional<uint64_t> seed_;
  std::vector<std::string> logit_bias_;
  std::vector<uint32_t> allowed_token_ids_;
  std::vector<std::string> bad_words_;

  std::optional<uint32_t> num_samples_;
  std::optional<uint32_t> best_of_;
  std::optional<uint32_t> beam_width_;
  std::optional<float> length_penalty_;
  std::string early_stopping_;
  std::optional<uint32_t> num_return_;
  std::optional<uint32_t> num_groups_;
  std::optional<float> diversity_penalty_;

  std::string cache_salt_;
  bool no_prefix_cache_ = false;
  std::string tenant_;

  std::optional<uint32_t> max_tokens_;
  std::optional<uint32_t> min_tokens_;
  bool ignore_eos_ = false;
  std::vector<std::string> stop_;
  std::vector<uint32_t> stop_token_ids_;
  bool include_stop_ = false;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_GENERATE_COMMAND_H_
