#ifndef QUIRE_BASE_NEAREST_NAME_H_
#define QUIRE_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire {

// The one of `known` that was probably meant by `typed`: the fewest letters changed, left out, added or swapped with
// their neighbour, at most one in three; the first of equals. "" when none is that near.
std::string NearestName(absl::string_view typed, const std::vector<std::string>& known);

}  // namespace quire

#endif  // QUIRE_BASE_NEAREST_NAME_H_
