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
#include "base/command_line.h"
#include "base/service_flags.h"
#include "base/settings.h"
#include "base/trace_flags.h"
#include "base/web_access.h"
#include "security/transport_flags.h"

namespace quire {

// How the model writes what is not plain text: "auto", "none" or the name of a format.
struct AnswerFormatOptions {
  std::string tool_calls = "auto";
  std::string reasoning = "auto";
};

// Whether the model is a reranker, see RerankerFinder.
enum class RerankerChoice { kAuto, kNone, kQwen3 };

// The command line of quire-openai, after all checks.
struct GatewayOptions {
  std::string listen = "127.0.0.1:8000";
  Transport transport;
  bool requires_tokens = false;  // Whether a request needs a bearer token, which the manager checks.
  // Names in certificates of clients that may use the model.
  std::vector<std::string> client_names = {"quire-client", "quire-admin"};
  WebAccess web_access;
  int max_connections = kDefaultMaxConnections;
  int max_connections_per_address = 0;      // 0 for a unix socket, whose clients have no addresses.
  std::string manager = "127.0.0.1:50051";  // See CheckEndpoints of the client library.
  TlsFiles manager_tls;                     // Without an authority, the connection is plain text.
  std::string manager_name;                 // Expected in the manager's certificate. Empty: the host of `manager`.
  std::vector<std::string> served_names;    // Of the model. Empty: the name that it has at the manager.
  size_t max_callers = 256;
  AnswerFormatOptions formats;
  RerankerChoice reranker = RerankerChoice::kAuto;
  bool ignores_unknown_fields = false;  // Of requests.
  size_t max_body_bytes = 16 << 20;
  int64_t max_receiving_bytes = 256 << 20;
  size_t max_waiting_bytes = 256 << 20;
  size_t max_unsent_bytes = 1 << 20;
  size_t max_answer_bytes = 256 << 20;
  uint64_t max_answer_logprobs = 1 << 20;
  absl::Duration request_timeout = absl::ZeroDuration();  // 0: there is none.
  absl::Duration head_timeout = absl::Seconds(10);
  absl::Duration body_timeout = absl::Seconds(30);
  absl::Duration idle_timeout = absl::Seconds(75);
  absl::Duration write_timeout = absl::Seconds(30);
  absl::Duration send_timeout = absl::Minutes(5);
  absl::Duration call_timeout = absl::Seconds(10);
  absl::Duration manager_wait = absl::Seconds(5);  // 0: requests that no manager takes end at once.
  absl::Duration resume_time = absl::Seconds(30);  // 0: requests end with their manager.
  absl::Duration drain_timeout = absl::Seconds(30);
  LogOptions log;
  TraceOptions traces;
};

// The table of the settings of quire-openai, which are read into `options`.
Settings GatewaySettings(GatewayOptions* options);

// Reads the command line. `arguments` does not include the program's name; `environment` consists of "NAME=value".
// Returns INVALID_ARGUMENT with one line that names the flag, its value, the limit and where the value comes from.
absl::StatusOr<CommandLine<GatewayOptions>> ParseGatewayCommandLine(absl::Span<const char* const> arguments,
                                                                    absl::Span<const char* const> environment = {});

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_OPTIONS_H_
