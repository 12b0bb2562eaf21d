// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_CLIENT_HELLO_H_
#define QUIRE_SERVING_CLIENT_HELLO_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// Reads the beginning of a connection with TLS, and finds the random bytes by which the client names it (RFC 8446,
// section 4.1.2). Not thread-safe.
class ClientHello {
 public:
  static constexpr size_t kRandomSize = 32;

  // Takes the next bytes of the client. Returns the random bytes when they are complete, and nothing after that.
  std::optional<std::string> Add(absl::string_view bytes);

 private:
  std::string record_head_;  // An incomplete head of a record.
  size_t left_in_record_ = 0;
  std::string message_;   // The first bytes of the message.
  bool is_over_ = false;  // The random bytes were found, or this is no TLS.
};

}  // namespace quire

#endif  // QUIRE_SERVING_CLIENT_HELLO_H_
