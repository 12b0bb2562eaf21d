// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_REQUEST_VALIDATION_H_
#define QUIRE_KV_MANAGER_REQUESTS_REQUEST_VALIDATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/jinja/text.h"
#include "kv_manager/requests/guide_cache.h"
#include "kv_manager/requests/inference_options.h"
#include "kv_manager/rpc/rpc_status.h"
#include "kv_manager/text/output_text.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/request.h"

// Checks what callers send. All limits of proto/quire/v1 are enforced here and nowhere else, so the scheduler and the
// workers see only sound values. Pure functions. Tokenizing makes ValidateGenerate slow when TextWork is large.

namespace quire {

inline constexpr int kDefaultMaxTokens = 16;
inline constexpr int kMaxLogprobs = 20;
inline constexpr int kMaxStopStrings = 16;
inline constexpr int kMaxStopStringBytes = 1024;
inline constexpr int kMaxStopTokenIds = 1024;
inline constexpr int kMaxLogitBiases = 1024;
inline constexpr int kMaxAllowedTokenIds = 8192;  // A plan carries the lists of all requests that it starts.
inline constexpr int kMaxBadWords = 256;
inline constexpr int kMaxBadWordBytes = 1024;
inline constexpr int kMaxBadWordTokens = 64;
inline constexpr int kMaxRequestIdBytes = 128;
inline constexpr int kMaxCacheSaltBytes = 256;
inline constexpr int kMaxPromptLogprobs = 131072;  // Prompt tokens times logprobs of each; one response has all.

// The text that the first response begins with.
enum class Echo {
  kNone,
  kText,    // The text of the prompt: as the client sent it, or as the chat template gives it.
  kTokens,  // The text that the tokens of the prompt decode to.
};

// A request without errors. Only the scheduler may still find that it never fits.
struct ValidRequest {
  Request request;       // Its id, arrival_us, deadline_us and beam_stop are not set.
  int num_returned = 1;  // Samples or hypotheses. If more samples are drawn, the best ones return.
  bool shows_logprobs = false;
  OutputOptions output;
  std::vector<TokenId> named_stop_tokens;  // The part of output.end_tokens that the caller named. Sorted.
  Echo echo = Echo::kNone;
  std::string prompt_text;  // Echo::kText needs it.

  // What the client has of a sample that the request continues.
  struct Continued {
    std::vector<TokenId> tokens = {};
    // Says why the last token ends it, unless it ends at a stop string.
    std::optional<FinishReason> end = std::nullopt;
    bool has_finish = false;  // The client knows the end.
  };
  std::vector<Continued> continued;  // Each sample has an entry. Empty: nothing is continued.
  // Nothing is to be computed, because all samples have ended.
  bool is_over() const { return !continued.empty() && request.continued.empty(); }
};

// Returns how a request wants its text to be tokenized. It is for GenerateRequest and TokenizeRequest.
template <typename Request>
EncodeOptions EncodeOptionsOf(const Request& request) {
  EncodeOptions options;
  if (request.has_add_special_tokens()) options.add_special_tokens = request.add_special_tokens();
  if (request.has_parse_special_tokens()) options.parse_special_tokens = request.parse_special_tokens();
  return options;
}

// Returns how many bytes of a request are tokenized or decoded before it is submitted. A token counts as four bytes,
// and a step of a chat template as one.
size_t TextWork(const v1::GenerateRequest& request);
inline size_t TextWork(const v1::ResumeRequest& /*request*/) {
  return 0;
}

// `drawn_seed` is used when the request has none. INVALID_ARGUMENT with every wrong field, as a BadRequest;
// FAILED_PRECONDITION when something needs a tokenizer and the model has none. A guide is compiled, unless `guides`
// knows it. Errors about the prompt name a field of the message at `prompt_path`, for example "inputs[3].".
absl::StatusOr<ValidRequest> ValidateGenerate(const v1::GenerateRequest& request, const ServedModel& model,
                                              const RequestLimits& limits, uint64_t drawn_seed,
                                              const GuideUser& user = {}, GuideCache* guides = nullptr,
                                              const std::string& prompt_path = "");

// Returns the prompt of a conversation, with the same errors as ValidateGenerate.
absl::StatusOr<jinja::Text> ValidateRenderChat(const v1::RenderChatRequest& request, const ServedModel& model,
                                               const RequestLimits& limits);

// Validate the requests of the other calls with text or tokens, as ValidateGenerate does.
absl::Status ValidateTokenize(const v1::TokenizeRequest& request, const ServedModel& model,
                              const RequestLimits& limits);
absl::Status ValidateDetokenize(const v1::DetokenizeRequest& request, const ServedModel& model);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_REQUEST_VALIDATION_H_
