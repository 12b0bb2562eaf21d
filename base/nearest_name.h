// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_NEAREST_NAME_H_
#define QUIRE_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire {

// Returns the name in `known` that is most similar to `typed`: the one with the smallest number of letters that are
// replaced, removed, added or swapped with their neighbour. That number is at most a third of the letters. Among equals
// the first name wins. Returns "" when no name is similar enough.
std::string NearestName(absl::string_view typed, const std::vector<std::string>& known);

}  // namespace quire

#endif  // QUIRE_BASE_NEAREST_NAME_H_
