#include "client/output.h"

#include <cstdio>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/util/json_util.h"

namespace quire {
namespace {

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
      return kExitRejected;
    default:
      return kExitFailed;
  }
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
  std::fflush(stdout);
}

int ReportError(const absl::Status& status, const std::string& endpoint) {
  const std::string kind =
      absl::StrReplaceAll(absl::AsciiStrToLower(absl::StatusCodeToString(status.code())), {{"_", " "}});
  std::string message = absl::StrCat("quirectl: ", kind, ": ", status.message());
  // gRPC's own words when the connection cannot be made.
  if (status.code() == absl::StatusCode::kUnavailable && absl::StrContains(status.message(), "connect")) {
    message = absl::StrCat("quirectl: no manager answers at ", endpoint,
                           "\n  Is quire-manager running there? --endpoint or $QUIRE_ENDPOINT name another place.");
  }
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", message.c_str());
  return ExitCodeOf(status.code());
}

}  // namespace quire
