// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/api_error.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/field_names.h"
#include "client/policy/call_status.h"
#include "gateway/openai/forced_calls.h"
#include "gateway/web/error_body.h"
#include "google/protobuf/descriptor.h"
#include "google/rpc/error_details.pb.h"
#include "quire/v1/inference.pb.h"

namespace quire {
namespace {

constexpr char kInvalid[] = "invalid_request_error";
constexpr char kServer[] = "server_error";
// Errors have this text in place of max_tokens if the client has not set it.
constexpr char kUnsetMaxTokens[] = "the limit of the answer (max_tokens is not set)";
// The reason REQUEST_UNKNOWN of the manager.
constexpr char kRequestUnknown[] = "request_unknown";
// The manager's name of what sets the number of samples, where it does not tell which of the two does.
constexpr char kSamples[] = "n or best_of";

struct CodeMapping {
  absl::StatusCode status;
  int http_code;
  const char* type;
};
constexpr CodeMapping kMappings[] = {
    {absl::StatusCode::kInvalidArgument, 400, kInvalid},
    {absl::StatusCode::kOutOfRange, 400, kInvalid},
    {absl::StatusCode::kFailedPrecondition, 400, kInvalid},
    {absl::StatusCode::kUnauthenticated, 401, "authentication_error"},
    {absl::StatusCode::kPermissionDenied, 403, "permission_error"},
    {absl::StatusCode::kNotFound, 404, "not_found_error"},
    {absl::StatusCode::kAlreadyExists, 409, "conflict_error"},
    {absl::StatusCode::kAborted, 409, "conflict_error"},
    {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error"},
    {absl::StatusCode::kUnimplemented, 501, kServer},
    {absl::StatusCode::kUnavailable, 503, "service_unavailable_error"},
    {absl::StatusCode::kDeadlineExceeded, 504, "timeout_error"},
};

// Reasons of RESOURCE_EXHAUSTED that hold for every further attempt, unless the manager says when to try again. Clients
// repeat what has got 429.
struct ReasonMapping {
  const char* reason;
  int http_code;
  const char* type;
};
constexpr ReasonMapping kLastingReasons[] = {
    {"response_too_large", 400, kInvalid},
    {"receiving_too_much", 400, kInvalid},
    {"tenant_limit", 403, "permission_error"},
};

// The beginning of the manager's path of an input.
constexpr char kInputs[] = "inputs[";

// Parts of the manager's paths whose names differ.
constexpr std::pair<const char*, const char*> kNames[] = {
    {"beam", "use_beam_search"},
    {"beam.num_return_sequences", "n"},
    {"include_stop", "include_stop_str_in_output"},
    {"resume_token", "Last-Event-ID"},
};

// Returns the error of a call that no manager has answered. What gRPC says of it is not for clients, because it
// contains the manager's address. A manager's own UNAVAILABLE always has details.
std::optional<ApiError> ConnectionError(const google::rpc::Status& status) {
  if (status.details_size() > 0) return std::nullopt;
  ApiError error{
      .http_code = 503, .message = "", .type = "service_unavailable_error", .code = kNoManager, .retry_after_s = 1};
  if (status.code() == static_cast<int>(absl::StatusCode::kUnimplemented) && status.message().empty()) {
    error.message = "what answers at --manager is not a manager; is it a worker?";
    return error;
  }
  const bool is_unavailable = status.code() == static_cast<int>(absl::StatusCode::kUnavailable);
  // Too many headers on a connection end all of its calls.
  const bool is_ended = status.code() == static_cast<int>(absl::StatusCode::kResourceExhausted) && IsCut(status);
  if (!is_unavailable && !is_ended) return std::nullopt;
  if (absl::StrContains(status.message(), "failed to connect") ||
      absl::StrContains(status.message(), "DNS resolution")) {
    error.message = "the gateway cannot reach its manager; try again";
  } else {
    error.message = "the manager was lost in the middle of the answer";
    error.code = kManagerLost;
  }
  return error;
}

// Returns true if the path names a field of GenerateRequest. The other requests have some of these fields. Clients do
// not know request_id, because the gateway sets it.
bool IsField(absl::string_view path) {
  if (path == "request_id") return false;
  if (path == kSamples) return true;
  absl::ConsumePrefix(&path, "start.");
  const bool is_of_input = absl::StartsWith(path, kInputs);
  const google::protobuf::Descriptor* message =
      is_of_input ? v1::EmbedRequest::descriptor() : v1::GenerateRequest::descriptor();
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    const google::protobuf::FieldDescriptor* const field =
        message == nullptr ? nullptr : message->FindFieldByName(std::string(part.substr(0, part.find('['))));
    if (field == nullptr) return false;
    message = field->message_type();
  }
  return true;
}

// Returns the client's field of a message, such as "messages[2].content" of the manager.
std::optional<std::string> MessageField(absl::string_view path, const ApiNames& names) {
  size_t index = 0;
  if (names.messages.empty() || !absl::ConsumePrefix(&path, "messages[")) return std::nullopt;
  if (!absl::SimpleAtoi(path.substr(0, path.find(']')), &index) || index >= names.messages.size()) return std::nullopt;
  return names.messages[index];
}

// Returns the client's field of an input, such as "inputs[2].text" of the manager.
std::optional<std::string> InputField(absl::string_view path, const ApiNames& names) {
  size_t index = 0;
  if (!absl::ConsumePrefix(&path, kInputs)) return std::nullopt;
  const size_t end = path.find(']');
  if (!absl::SimpleAtoi(path.substr(0, end), &index) || index >= names.inputs.size()) return std::nullopt;
  path.remove_prefix(end + 1);
  absl::ConsumePrefix(&path, ".token_ids.ids");
  absl::ConsumePrefix(&path, ".text");
  return absl::StrCat(names.inputs[index], path);
}

// Returns the field that the client must correct after an error about this one. Without max_tokens it is the prompt
// that leaves too little room for an answer.
std::string ParamOf(const std::string& field, const ApiNames& names) {
  return field == kUnsetMaxTokens ? names.prompt : field;
}

// Returns the text of an error with the client's names in place of the manager's.
std::string WithApiNames(absl::string_view text, const ApiNames& names) {
  return RenameFields(text, [&](absl::string_view word) {
    return IsField(word) ? std::optional(ApiFieldName(word, names)) : std::nullopt;
  });
}

// Sets the error of a status without details about fields. Its message may begin with a field, as in "text: needs ...".
void SetMessage(absl::string_view text, const ApiNames& names, ApiError* error) {
  const size_t colon = text.find(": ");
  if (colon != text.npos && IsField(text.substr(0, colon))) {
    error->message = ApiFieldName(text.substr(0, colon), names);
    error->param = ParamOf(error->message, names);
    text.remove_prefix(colon);
  }
  error->message += WithApiNames(text, names);
}

}  // namespace

std::string ApiError::Body() const {
  return ErrorBody(message, type, param, code);
}

ApiError FieldError(absl::string_view field, absl::string_view description) {
  return {.message = absl::StrCat(field, " ", description), .param = std::string(field)};
}

std::string ApiFieldName(absl::string_view path, const ApiNames& names) {
  absl::ConsumePrefix(&path, "start.");
  if (std::optional<std::string> field = InputField(path, names)) return *std::move(field);
  if (path == "beam.width" || path == kSamples) return names.num_samples;
  for (const auto& [name, api_name] : kNames) {
    if (path == name || absl::EndsWith(path, absl::StrCat(".", name))) return api_name;
  }
  for (const char* prefix : {"sampling.", "stopping.", "beam.", "chat."}) absl::ConsumePrefix(&path, prefix);
  if (path == "template_kwargs") return names.template_variables;
  if (path == "stop" || absl::StartsWith(path, "stop[")) return absl::StrCat(names.stop, path.substr(4));
  if (std::optional<std::string> field = MessageField(path, names)) return *std::move(field);
  if (path == "max_tokens") return names.max_tokens.value_or(kUnsetMaxTokens);
  if (path == "logprobs") return names.logprobs;
  if (path == "text") return names.prompt;
  if (absl::ConsumePrefix(&path, "token_ids")) {
    absl::ConsumePrefix(&path, ".ids");
    return absl::StrCat(names.prompt, path);
  }
  if (path == "received" || absl::StartsWith(path, "received[")) return "Last-Event-ID";
  if (path == "chat") return names.messages.empty() ? "messages" : names.prompt;
  if (const size_t call = path.find("].tool_calls["); call != path.npos) {
    // The name and the arguments of a call have an object of their own.
    const std::string of_call = absl::StrReplaceAll(
        path.substr(call + 1), {{"].name", "].function.name"}, {"].arguments", "].function.arguments"}});
    return absl::StrCat(path.substr(0, call + 1), of_call);
  }
  if (path == "guided" || absl::StartsWith(path, "guided.")) return names.guide;
  return std::string(path);
}

ApiError ToApiError(const google::rpc::Status& status, const ApiNames& names) {
  if (std::optional<ApiError> connection = ConnectionError(status)) return *std::move(connection);
  ApiError error{.http_code = 500, .message = "", .type = kServer};
  SetMessage(status.message(), names, &error);
  for (const CodeMapping& mapping : kMappings) {
    if (static_cast<int>(mapping.status) == status.code()) {
      error.http_code = mapping.http_code;
      error.type = mapping.type;
    }
  }
  for (const google::protobuf::Any& any : status.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&bad_request) && bad_request.field_violations_size() > 0) {
      error.message.clear();
      error.param.reset();
      for (const auto& violation : bad_request.field_violations()) {
        std::string field = ApiFieldName(violation.field(), names);
        std::string description = violation.description();
        if (field == "tools") field = TakeParametersField(names.tool_parameters, &description).value_or(field);
        description = WithApiNames(description, names);
        if (!error.param.has_value()) error.param = ParamOf(field, names);
        absl::StrAppend(&error.message, error.message.empty() ? "" : "; ", field, " ", description);
        if (absl::StrContains(violation.description(), "the model's context")) error.code = "context_length_exceeded";
      }
    } else if (any.UnpackTo(&retry)) {
      const int64_t seconds = retry.retry_delay().seconds() + (retry.retry_delay().nanos() > 0 ? 1 : 0);
      error.retry_after_s = static_cast<int>(std::clamp<int64_t>(seconds, 1, 3600));
    } else if (any.UnpackTo(&info) && !error.code.has_value()) {
      error.code = absl::AsciiStrToLower(info.reason());
    }
  }
  for (const ReasonMapping& mapping : kLastingReasons) {
    if (error.http_code != 429 || error.retry_after_s.has_value() || error.code != mapping.reason) continue;
    error.http_code = mapping.http_code;
    error.type = mapping.type;
  }
  if (error.code == kRequestUnknown) {
    error.param = "Last-Event-ID";
    error.message = "Last-Event-ID is the id of a stream that cannot be resumed any more; send the request without it";
  }
  if (error.http_code == 401) {
    error.code = "invalid_api_key";
    // The manager speaks of metadata, which are the headers of gRPC.
    absl::StrReplaceAll(
        {{"the metadata authorization:", "the header Authorization:"}, {"the call has", "the request has"}},
        &error.message);
  }
  if ((error.http_code == 429 || error.http_code == 503) && !error.retry_after_s.has_value()) error.retry_after_s = 1;
  return error;
}

}  // namespace quire
