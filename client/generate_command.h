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

  // Sends the request and prints the stream. Returns the exit code. Ctrl-C ends the call, and the server frees its
  // blocks.
  int Run(const ClientOptions& client_options, OutputFormat format);

 private:
  absl::StatusOr<v1::GenerateRequest> MakeRequest() const;

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

  uint32_t max_tokens_ = 128;
  std::optional<uint32_t> min_tokens_;
  bool ignore_eos_ = false;
  std::vector<std::string> stop_;
  std::vector<uint32_t> stop_token_ids_;
  bool include_stop_ = false;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_GENERATE_COMMAND_H_
