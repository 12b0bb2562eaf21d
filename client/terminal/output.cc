// SPDX-License-Identifier: Apache-2.0

#include "client/terminal/output.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "client/library/client.h"
#include "client/library/probe.h"
#include "google/protobuf/util/json_util.h"
#include "security/tls_probe.h"

namespace quire {
namespace {

int g_output_errno = 0;  // The error of the first write that failed.

int ExitCodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return kExitUnavailable;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return kExitRejected;
    default:
      return kExitFailed;
  }
}

// True for gRPC's answer to a message that exceeds a size limit. Trying again cannot help.
bool IsTooLarge(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted &&
         absl::StrContains(status.message(), "message larger than max");
}

// How long an HTTP server may take to show that it is one.
constexpr absl::Duration kProbeTimeout = absl::Seconds(2);

constexpr char kHint[] = "--endpoint or $QUIRE_ENDPOINT name another place";

// Explains why gRPC could not connect: nobody listens at the port or the socket, or the TLS settings differ. gRPC's
// message ends with the reason.
std::string ExplainNoConnection(absl::string_view message, const std::string& endpoint) {
  constexpr absl::string_view kBeforeReason = "last error: ";
  const size_t found = message.find(kBeforeReason);
  const std::string reason(found == message.npos ? message : message.substr(found + kBeforeReason.size()));
  absl::string_view socket = endpoint;
  if (absl::ConsumePrefix(&socket, "unix:") && absl::StrContains(reason, "No such file or directory")) {
    absl::ConsumePrefix(&socket, "//");
    return absl::StrCat("no manager answers at ", endpoint, ": there is no socket ", socket,
                        "; is quire-manager running there? ", kHint);
  }
  // The last two are how gRPC words a failed connection to a unix socket.
  bool is_open = true;
  for (const char* failure :
       {"Failed to connect to remote host", "connect() timed out", "Connection refused", "Permission denied"}) {
    if (absl::StrContains(message, failure)) is_open = false;
  }
  if (!is_open) {
    return absl::StrCat("no manager answers at ", endpoint, "; is quire-manager running there? ", kHint, "\n  ",
                        reason);
  }
  if (SpeaksHttp1(endpoint, kProbeTimeout)) return DescribeHttpServer(endpoint);
  if (IsAnswerInPlainText(reason)) {
    return absl::StrCat("the manager at ", endpoint, " does not speak TLS, and with --tls-ca quirectl does: ", reason,
                        "\n  Leave out --tls-ca and the other TLS options, or start the manager with --tls-cert and "
                        "--tls-key");
  }
  return absl::StrCat("no manager answers at ", endpoint, ", though the port is open: ", reason,
                      "\n  Does the manager speak TLS (--tls-ca), to another name (--tls-name), and ask for a "
                      "certificate (--tls-cert, --tls-key)?\n  `quirectl doctor` looks closer; ",
                      kHint);
}

// Translates gRPC's errors about an endpoint that is not a manager. Returns "" for all other errors.
std::string ExplainConnection(const absl::Status& status, const std::string& endpoint) {
  if (status.code() == absl::StatusCode::kUnimplemented && status.message().empty()) {
    return absl::StrCat("what answers at ", endpoint, " is not a manager; is it a worker? ", kHint);
  }
  if (!IsConnectionError(status)) return "";
  if (absl::StrContains(status.message(), "DNS resolution")) {
    return absl::StrCat("no address is known for the host of ", endpoint, "; ", kHint);
  }
  if (absl::StrContains(status.message(), "failed to connect")) return ExplainNoConnection(status.message(), endpoint);
  return absl::StrCat("the manager at ", endpoint, " closed the connection before the answer was complete");
}

std::string Explain(const absl::Status& status, const std::string& endpoint) {
  if (std::string text = ExplainConnection(status, endpoint); !text.empty()) return text;
  if (status.code() == absl::StatusCode::kDeadlineExceeded && status.message() == "Deadline Exceeded") {
    return absl::StrCat("the manager at ", endpoint,
                        " did not answer in time, or the request waited for a worker; `quirectl status` shows the "
                        "workers\n  --timeout (generate) and --rpc-timeout (other commands) allow more time");
  }
  if (IsTooLarge(status)) {
    return absl::StrCat("the request or the answer is longer than --max-message-bytes of the manager: ",
                        status.message());
  }
  const std::string kind =
      absl::StrReplaceAll(absl::AsciiStrToLower(absl::StatusCodeToString(status.code())), {{"_", " "}});
  const char* hint = "";
  if (status.code() == absl::StatusCode::kUnauthenticated) {
    hint = "\n  give a token (--token, $QUIRE_TOKEN) that the manager's --tokens has";
  } else if (IsNoWorkerError(status)) {
    hint = "\n  `quirectl status` shows the workers, and why the manager cannot use one";
  }
  return absl::StrCat(kind, ": ", status.message(), hint);
}

// A token without text is shown by its id.
std::string TokenText(const v1::TokenLogprob& token) {
  if (token.token().empty()) return absl::StrCat(token.token_id());
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(token.token()), "\"");
}

}  // namespace

void PrintJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  if (const auto status = google::protobuf::util::MessageToJsonString(message, &json, options); !status.ok()) {
    json = "{}";
  }
  std::printf("%s\n", json.c_str());
}

void PrintLogprobs(const v1::PositionLogprobs& logprobs) {
  if (!logprobs.has_chosen()) return;
  const std::string rank = logprobs.rank() > 0 ? absl::StrCat("#", logprobs.rank()) : "";
  std::string line =
      absl::StrFormat("%9.4f  %-7s %-18s", logprobs.chosen().logprob(), rank, TokenText(logprobs.chosen()));
  for (const v1::TokenLogprob& token : logprobs.top()) {
    absl::StrAppendFormat(&line, "  %s %.4f", TokenText(token), token.logprob());
  }
  absl::StripTrailingAsciiWhitespace(&line);
  std::printf("%s\n", line.c_str());
}

bool FlushOutput() {
  if (g_output_errno != 0) return false;
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return true;
  g_output_errno = errno != 0 ? errno : EIO;
  return false;
}

bool HasLostReader() {
  return g_output_errno == EPIPE;
}

int EndOutput(int exit_code) {
  if (FlushOutput()) return exit_code;
  std::fprintf(stderr, "quirectl: cannot write to standard output: %s\n", std::strerror(g_output_errno));
  return kExitFailed;
}

void ReserveStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // open() returns the lowest number that is free, which is this one.
    if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) return;
  }
}

const char* AdviceAfterCut(uint32_t num_tokens, uint32_t wanted_tokens) {
  return num_tokens < wanted_tokens ? "the model's context, or the worker's pool, has no room for more"
                                    : "-n allows more, up to the model's context";
}

std::string DescribeHttpServer(const std::string& endpoint) {
  return absl::StrCat("an HTTP server answers at ", endpoint,
                      ", such as quire-openai or a metrics port; the manager's port is 50051 by default");
}

int ReportUsage(absl::string_view message) {
  std::fprintf(stderr, "quirectl: %s\n", std::string(message).c_str());
  return kExitUsage;
}

int ReportError(const absl::Status& status, const std::string& endpoint) {
  // The text comes first where both go to the same place.
  FlushOutput();
  std::fprintf(stderr, "quirectl: %s\n", Explain(status, endpoint).c_str());
  return IsTooLarge(status) ? kExitRejected : ExitCodeOf(status.code());
}

}  // namespace quire
