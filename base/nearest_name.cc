// SPDX-License-Identifier: Apache-2.0

#include "base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace quire {
namespace {

constexpr size_t kMaxLength = 64;  // Longer ones are near to nothing: the table below stays small.

// Computes the optimal string alignment distance (Damerau 1964, Levenshtein 1966). It keeps three rows of the usual
// table.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string NearestName(absl::string_view typed, const std::vector<std::string>& known) {
  if (typed.size() > kMaxLength) return "";
  std::string nearest;
  size_t least = std::max<size_t>(1, typed.size() / 3) + 1;
  for (const std::string& name : known) {
    const size_t distance = Distance(typed, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

}  // namespace quire
