// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_JSON_TEXT_H_
#define QUIRE_BASE_JSON_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// Appends `text` as a JSON string, with its quotes. Bytes that are not UTF-8 become U+FFFD, so this is JSON for any
// text.
void AppendJsonString(absl::string_view text, std::string* out);

}  // namespace quire

#endif  // QUIRE_BASE_JSON_TEXT_H_
