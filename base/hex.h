// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_HEX_H_
#define QUIRE_BASE_HEX_H_

namespace quire {

// Returns the value of a hexadecimal digit, whose letter may be of either case, or -1 for any other character.
constexpr int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace quire

#endif  // QUIRE_BASE_HEX_H_
