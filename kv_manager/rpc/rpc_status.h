#ifndef QUIRE_KV_MANAGER_RPC_RPC_STATUS_H_
#define QUIRE_KV_MANAGER_RPC_RPC_STATUS_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/rpc/status.pb.h"

// Errors on their way from where they are found to the client. Inside the manager an absl::Status carries the
// google.rpc details as payloads; ToGrpcStatus at the edge turns it into what goes on the wire. Pure functions.

namespace quire {

// A field of a request that is wrong: its path from the request message, for example "sampling.stop[2]", and the value
// and the limit in words.
struct FieldError {
  std::string field;
  std::string description;

  bool operator==(const FieldError&) const = default;
};

// All that is wrong with one request. The first sixteen are kept, the rest are counted.
class FieldErrors {
 public:
  void Add(std::string field, std::string description);

  bool empty() const { return count_ == 0; }
  const std::vector<FieldError>& kept() const { return kept_; }

  // INVALID_ARGUMENT with a BadRequest; the message is the first error and how many there are beside it.
  // REQUIRES: !empty().
  absl::Status ToStatus() const;

 private:
  std::vector<FieldError> kept_;
  int count_ = 0;
};

// The same status with an ErrorInfo: a stable UPPER_SNAKE_CASE word for programs, and the numbers behind it.
absl::Status WithReason(absl::Status status, absl::string_view reason,
                        const std::map<std::string, std::string>& metadata = {});

// The same status with a RetryInfo: a later attempt may succeed.
absl::Status WithRetryDelay(absl::Status status, int64_t delay_ms);

// The delay of WithRetryDelay in milliseconds, or of the status code as described below; none: do not retry.
std::optional<int64_t> RetryDelayMs(const absl::Status& status);

// The status for the wire: same code, a message of at most 512 ASCII bytes, and as error details a serialized
// google.rpc.Status of at most 4 KiB (details that do not fit are left out, the later ones first). A status without a
// reason gets that of its code: RESOURCE_EXHAUSTED "QUEUE_FULL" and UNAVAILABLE "NO_WORKER", both with a RetryInfo;
// FAILED_PRECONDITION "NEVER_FITS"; DEADLINE_EXCEEDED "DEADLINE_EXCEEDED"; INTERNAL "INTERNAL". Of these codes, that of
// WithStatusReason comes before the code's.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Those details, as a message of their own.
google::rpc::Status ToRpcStatus(const absl::Status& status);

// The same, and tells gRPC's own retries when to come again, by the trailer grpc-retry-pushback-ms.
grpc::Status ToGrpcStatus(const absl::Status& status, grpc::ServerContextBase* context);

// Bytes of a caller for an error message: in quotes, escaped to ASCII, shortened to 64 bytes.
std::string Quoted(absl::string_view value);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RPC_RPC_STATUS_H_
