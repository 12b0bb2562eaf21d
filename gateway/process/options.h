// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_OPTIONS_H_
#define QUIRE_GATEWAY_PROCESS_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/flags.h"
#include "base/log_flags.h"
#include "base/trace_flags.h"
#include "base/web_access.h"
#include "security/transport_flags.h"

namespace quire {

// How the model writes what is not plain text: "auto", "none" or the name of a format.
struct AnswerFormatOptions {
  std::string tool_calls;
  std::string reasoning;
};

// Whether the model is a reranker, see RerankerFinder.
enum class RerankerChoice { kAuto, kNone, kQwen3 };

// The command line of quire-openai, after all checks.
struct GatewayOptions {
  std::string listen;
  Transport transport;
  bool requires_tokens;                   // Whether a request needs a bearer token, which the manager checks.
  std::vector<std::string> client_names;  // Names in certificates of clients that may use the model.
  WebAccess web_access;
  int max_connections;
  int max_connections_per_address;        // 0 for a unix socket, whose clients have no addresses.
  std::string manager;                    // See CheckEndpoints of the client library.
  TlsFiles manager_tls;                   // Without an authority, the connection is plain text.
  std::string manager_name;               // Expected in the manager's certificate. Empty: the host of `manager`.
  std::vector<std::string> served_names;  // Of the model. Empty: the name that it has at the manager.
  size_t max_callers;
  AnswerFormatOptions formats;
  RerankerChoice reranker;
  bool ignores_unknown_fields;  // Of requests.
  size_t max_body_bytes;
  int64_t max_receiving_bytes;
  size_t max_waiting_bytes;
  size_t max_unsent_bytes;
  size_t max_answer_bytes;
  uint64_t max_answer_logprobs;
  absl::Duration request_timeout;  // 0: there is none.
  absl::Duration head_timeout;
  absl::Duration body_timeout;
  absl::Duration idle_timeout;
  absl::Duration write_timeout;
  absl::Duration send_timeout;
  absl::Duration call_timeout;
  absl::Duration manager_wait;  // 0: requests that no manager takes end at once.
  absl::Duration resume_time;   // 0: requests end with their manager.
  absl::Duration drain_timeout;
  LogOptions log;
  TraceOptions traces;
};

// The flags of quire-openai.
const ProgramFlags& GatewayFlags();

// Reads the command line. `arguments` does not include the program's name; `environment` consists of "NAME=value".
// Returns INVALID_ARGUMENT with one line that names the flag, its value, the limit and where the value comes from.
absl::StatusOr<CommandLine<GatewayOptions>> ParseGatewayCommandLine(absl::Span<const char* const> arguments,
                                                                    absl::Span<const char* const> environment = {});

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_OPTIONS_H_
