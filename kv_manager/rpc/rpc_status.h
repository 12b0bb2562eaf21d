// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_RPC_RPC_STATUS_H_
#define QUIRE_KV_MANAGER_RPC_RPC_STATUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/rpc/status.pb.h"

// Errors on their way to a client, as protobuf messages. Inside the manager an absl::Status carries what
// base/status_reason.h and FieldErrors attach to it; ToRpcStatus turns that into google.rpc details. Pure functions.

namespace quire {

// A wrong field of a request: its path from the request message, for example "sampling.stop[2]", and a description that
// names the value and the limit.
struct FieldError {
  std::string field;
  std::string description;

  bool operator==(const FieldError&) const = default;
};

// All wrong fields of one request. The first sixteen are kept, the others are only counted.
class FieldErrors {
 public:
  void Add(std::string field, std::string description);

  bool empty() const { return count_ == 0; }
  const std::vector<FieldError>& kept() const { return kept_; }

  // INVALID_ARGUMENT with a BadRequest. The message has the first error and the number of the others.
  // REQUIRES: !empty().
  absl::Status ToStatus() const;

 private:
  std::vector<FieldError> kept_;
  int count_ = 0;
};

// Returns how long a client should wait before it tries again, in milliseconds: the delay of WithRetryDelay, or that of
// the status code as described below. Empty: another attempt would fail, too.
std::optional<int64_t> RetryDelayMs(const absl::Status& status);

// The status as a protobuf message: the same code, a text of at most 512 ASCII bytes, and details of at most 4 KiB in
// all. The reason becomes an ErrorInfo, the retry delay a RetryInfo, field errors a BadRequest; details that
// do not fit are left out, the later ones first. A status without a reason gets that of its code: RESOURCE_EXHAUSTED
// "QUEUE_FULL" and UNAVAILABLE "NO_WORKER", both with a RetryInfo; FAILED_PRECONDITION "NEVER_FITS"; DEADLINE_EXCEEDED
// "DEADLINE_EXCEEDED"; INTERNAL "INTERNAL".
google::rpc::Status ToRpcStatus(const absl::Status& status);

// Text of a client for an error message: in quotes, escaped to ASCII, shortened to 64 bytes.
std::string Quoted(absl::string_view value);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RPC_RPC_STATUS_H_
