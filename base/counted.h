// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_COUNTED_H_
#define QUIRE_BASE_COUNTED_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace quire {

// Returns the count with its noun, whose plural has an "s": "1 block", "2 blocks".
inline std::string Counted(uint64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace quire

#endif  // QUIRE_BASE_COUNTED_H_
