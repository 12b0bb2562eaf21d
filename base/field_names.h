// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_FIELD_NAMES_H_
#define QUIRE_BASE_FIELD_NAMES_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// Renames the fields of a request in an error that speaks of them by their paths, such as "stopping.max_tokens is 4".
// A word with a dot or an underscore in it may be a path. Text of a client is in double quotes and stays as it is.
// `name_of` returns nothing for a word that is no path.
std::string RenameFields(absl::string_view text,
                         const std::function<std::optional<std::string>(absl::string_view)>& name_of);

}  // namespace quire

#endif  // QUIRE_BASE_FIELD_NAMES_H_
