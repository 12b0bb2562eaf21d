#ifndef QUIRE_KV_MANAGER_REQUESTS_REQUEST_VALIDATION_H_
#define QUIRE_KV_MANAGER_REQUESTS_REQUEST_VALIDATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/inference_options.h"
#include "kv_manager/rpc/rpc_status.h"
#include "kv_manager/text/output_text.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/request.h"

// Checks what callers send, completely: every limit of proto/quire/v1 is enforced here and nowhere else, so that the
// scheduler and the workers see only sound values. Pure functions; tokenizing makes ValidateGenerate slow where
// TextWork is large.

namespace quire {

inline constexpr int kDefaultMaxTokens = 16;
inline constexpr int kMaxLogprobs = 20;
inline constexpr int kMaxStopStrings = 16;
inline constexpr int kMaxStopStringBytes = 1024;
inline constexpr int kMaxStopTokenIds = 1024;
inline constexpr int kMaxLogitBiases = 1024;
inline constexpr int kMaxAllowedTokenIds = 8192;  // A plan that starts many requests carries the lists of all.
inline constexpr int kMaxBadWords = 256;
inline constexpr int kMaxBadWordBytes = 1024;
inline constexpr int kMaxBadWordTokens = 64;
inline constexpr int kMaxRequestIdBytes = 128;
inline constexpr int kMaxTenantBytes = 128;
inline constexpr int kMaxCacheSaltBytes = 256;
inline constexpr int kMaxPromptLogprobs = 131072;  // Prompt tokens times logprobs of each: one response carries them.

// What the text of the first response begins with: nothing, the text of the prompt as it came, or the text that the
// prompt's tokens decode to.
enum class Echo { kNone, kText, kTokens };

// A call of Generate that can be served, unless the scheduler finds that it never fits.
struct ValidRequest {
  Request request;       // Without id, arrival, deadline and beam_stop.
  int num_returned = 1;  // Samples or hypotheses; of drawn ones the best if there are more.
  bool shows_logprobs = false;
  OutputOptions output;
  std::vector<TokenId> named_stop_tokens;  // Of output.end_tokens, those that the caller named. Sorted.
  Echo echo = Echo::kNone;
  std::string prompt_text;  // For Echo::kText.
};

// How much of a request is made into tokens or text before it is submitted, in bytes. A token counts as four.
size_t TextWork(const v1::GenerateRequest& request);

// `drawn_seed` is used when the request has none. INVALID_ARGUMENT with every wrong field, as a BadRequest;
// FAILED_PRECONDITION when something needs a tokenizer and the model has none.
absl::StatusOr<ValidRequest> ValidateGenerate(const v1::GenerateRequest& request, const ServedModel& model,
                                              const RequestLimits& limits, uint64_t drawn_seed);

// What a newer client sends and this server does not know must not be ignored in silence: adds every unknown field of
// `message` and the messages in it, under `path`.
void CheckUnknownFields(const google::protobuf::Message& message, const std::string& path, FieldErrors* errors);

// The same for the other calls that carry text or tokens.
absl::Status ValidateTokenize(const v1::TokenizeRequest& request, const ServedModel& model,
                              const RequestLimits& limits);
absl::Status ValidateDetokenize(const v1::DetokenizeRequest& request, const ServedModel& model);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_REQUEST_VALIDATION_H_
