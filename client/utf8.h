#ifndef QUIRE_CLIENT_UTF8_H_
#define QUIRE_CLIENT_UTF8_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

// A request with a string that is not UTF-8 cannot be parsed by any server, which then says nothing of use. So the
// client looks first.

namespace quire {

// OK, or INVALID_ARGUMENT with the place of the first byte that is not UTF-8. `field` names the text.
absl::Status CheckUtf8(absl::string_view text, absl::string_view field);

// The same for every string of `message`, named by its path: "stopping.stop[0]".
absl::Status CheckUtf8(const google::protobuf::Message& message);

}  // namespace quire

#endif  // QUIRE_CLIENT_UTF8_H_
