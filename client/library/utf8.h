// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_UTF8_H_
#define QUIRE_CLIENT_LIBRARY_UTF8_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"

// No server can parse a request with a string that is not UTF-8, and its error would not say so. Therefore the client
// checks before it sends.

namespace quire {

// INVALID_ARGUMENT for the first string of `message` that is not UTF-8. The error names its path: "stopping.stop[0]".
absl::Status CheckUtf8Fields(const google::protobuf::Message& message);

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_UTF8_H_
