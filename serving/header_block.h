// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_HEADER_BLOCK_H_
#define QUIRE_SERVING_HEADER_BLOCK_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace quire {

// Counts the fields of a header block of HTTP/2 while it arrives in pieces, without decoding them (RFC 7541, section
// 6). A field that refers to an earlier one is one byte long, so the number of bytes says little about the memory that
// a block needs. Not thread-safe.
class HeaderBlock {
 public:
  // Takes the next piece of the block. Does nothing after a syntax error.
  void Add(absl::string_view piece);

  int64_t num_bytes() const { return num_bytes_; }
  int num_fields() const { return num_fields_; }
  // Whether the block has a number that is too large or too long.
  bool has_error() const { return has_error_; }

 private:
  enum class Part { kField, kFieldIndex, kStringLength, kStringLengthRest, kString };

  // Handles a byte that does not belong to the text of a string.
  void AddByte(uint8_t byte);
  void BeginField(uint8_t byte);
  void FinishIndex();
  void FinishLength();
  // Begins a number whose first byte has `prefix_bits` bits for it. Returns whether the number ends with this byte.
  bool BeginNumber(uint8_t byte, int prefix_bits);
  bool ContinueNumber(uint8_t byte);

  Part part_ = Part::kField;
  int64_t num_bytes_ = 0;
  int num_fields_ = 0;
  bool has_error_ = false;
  int64_t number_ = 0;  // The index or length that is being read, or the rest of the string.
  int shift_ = 0;
  bool is_literal_ = false;  // The field has a value of its own, and its name too if the index is 0.
  int num_strings_left_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SERVING_HEADER_BLOCK_H_
