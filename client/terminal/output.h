// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_TERMINAL_OUTPUT_H_
#define QUIRE_CLIENT_TERMINAL_OUTPUT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "quire/v1/common.pb.h"

namespace quire {

// The exit codes of quirectl. Its --help documents them and scripts rely on them. Ctrl-C ends quirectl by the signal,
// which shells show as 130.
enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,       // Any other error, or standard output cannot be written.
  kExitUsage = 2,        // The command line or the input is wrong; nothing was sent.
  kExitUnavailable = 3,  // The manager cannot be reached or cannot serve now; trying again may help.
  kExitRejected = 4,     // The manager refused the request; see the message.
  kExitPartial = 5,      // The stream broke, or the request was aborted, after text had been printed.
};

enum class OutputFormat { kText, kJson };

// Converts a number for printf's %llu, whose type differs from uint64_t on some systems.
inline unsigned long long Big(uint64_t value) {
  return value;
}

// Prints `message` as one line of JSON with the names of the proto fields.
void PrintJson(const google::protobuf::Message& message);

// Prints one line for people: the token, its logprob and rank, and the likeliest tokens.
void PrintLogprobs(const v1::PositionLogprobs& logprobs);

// Flushes standard output. Returns false when it cannot be written; EndOutput prints why.
bool FlushOutput();

// Returns whether standard output could not be written because nobody reads it any more.
bool HasLostReader();

// Returns `exit_code`. When standard output could not be written, prints an error and returns kExitFailed instead.
int EndOutput(int exit_code);

// Opens the standard streams that the caller has closed, so that no socket gets their numbers. Writing to such a stream
// fails.
void ReserveStandardStreams();

// Returns what to do about an answer that ended after `num_tokens` because it may not be longer.
const char* AdviceAfterCut(uint32_t num_tokens, uint32_t wanted_tokens);

// Says that what answers at `endpoint` is an HTTP server and no manager.
std::string DescribeHttpServer(const std::string& endpoint);

// Prints "quirectl: ..." to standard error and returns kExitUsage.
int ReportUsage(absl::string_view message);

// Prints "quirectl: ..." to standard error and returns the exit code for the status. The message names `endpoint` when
// nobody answers there.
int ReportError(const absl::Status& status, const std::string& endpoint);

}  // namespace quire

#endif  // QUIRE_CLIENT_TERMINAL_OUTPUT_H_
