#ifndef QUIRE_CLIENT_UTF8_H_
#define QUIRE_CLIENT_UTF8_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"

// A request with a string that is not UTF-8 cannot be parsed by any server, which then says nothing of use. So the
// client looks first.

namespace quire {

// INVALID_ARGUMENT for the first string of `message` that is not UTF-8, which is named by its path: "stopping.stop[0]".
absl::Status CheckUtf8(const google::protobuf::Message& message);

}  // namespace quire

#endif  // QUIRE_CLIENT_UTF8_H_
