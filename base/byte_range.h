// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_BYTE_RANGE_H_
#define QUIRE_BASE_BYTE_RANGE_H_

#include <cstddef>

namespace quire {

// The bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

}  // namespace quire

#endif  // QUIRE_BASE_BYTE_RANGE_H_
