// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_BACKEND_STATUS_H_
#define QUIRE_KERNELS_BACKEND_STATUS_H_

#include <string>
#include <utility>

namespace quire {

// Whether a backend can do what it was asked for. This folder does not include Abseil, so it is no absl::Status.
class [[nodiscard]] BackendStatus {
 public:
  static BackendStatus Ok() { return BackendStatus(true, ""); }
  // `message` says what the backend cannot do, with the value and the limit.
  static BackendStatus Error(std::string message) { return BackendStatus(false, std::move(message)); }

  bool ok() const { return is_ok_; }
  // The result is empty when ok().
  const std::string& message() const { return message_; }

 private:
  BackendStatus(bool is_ok, std::string message) : is_ok_(is_ok), message_(std::move(message)) {}

  bool is_ok_;
  std::string message_;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_BACKEND_STATUS_H_
