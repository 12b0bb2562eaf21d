#ifndef QUIRE_BASE_STATUS_REASON_H_
#define QUIRE_BASE_STATUS_REASON_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace quire {

// For code that is free of protobuf: the UPPER_SNAKE_CASE word that tells a status from others of its code.
// ToGrpcStatus sends it as the reason of an ErrorInfo, with the retry delay of the code.

inline constexpr char kStatusReasonPayload[] = "quire/reason";

inline absl::Status WithStatusReason(absl::Status status, absl::string_view reason) {
  status.SetPayload(kStatusReasonPayload, absl::Cord(reason));
  return status;
}

// Empty when it has none.
inline std::string StatusReason(const absl::Status& status) {
  return std::string(status.GetPayload(kStatusReasonPayload).value_or(absl::Cord()));
}

}  // namespace quire

#endif  // QUIRE_BASE_STATUS_REASON_H_
