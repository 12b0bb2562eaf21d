// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_UTF8_H_
#define QUIRE_CLIENT_LIBRARY_UTF8_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"

// Protobuf sends a string that is not UTF-8, and writes a line to standard error. A manager refuses the request with
// the path of the string. The client checks before it sends, so nothing is sent or printed in vain, and a server that
// is no manager gives no other error.

namespace quire {

// INVALID_ARGUMENT for the first string of `message` that is not UTF-8. The error names its path, as the manager's
// error does: "stopping.stop[0]", "chat.messages[2].content".
absl::Status CheckUtf8Fields(const google::protobuf::Message& message);

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_UTF8_H_
