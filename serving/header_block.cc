// SPDX-License-Identifier: Apache-2.0

#include "serving/header_block.h"

#include <algorithm>

namespace quire {
namespace {

constexpr int kMaxShift = 28;  // Numbers have at most five bytes, as in gRPC.

}  // namespace

void HeaderBlock::Add(absl::string_view piece) {
  num_bytes_ += static_cast<int64_t>(piece.size());
  while (!piece.empty() && !has_error_) {
    if (part_ == Part::kString) {
      const auto size = static_cast<size_t>(std::min(number_, static_cast<int64_t>(piece.size())));
      piece.remove_prefix(size);
      number_ -= static_cast<int64_t>(size);
      if (number_ == 0) part_ = num_strings_left_ > 0 ? Part::kStringLength : Part::kField;
    } else {
      AddByte(static_cast<uint8_t>(piece.front()));
      piece.remove_prefix(1);
    }
  }
}

void HeaderBlock::AddByte(uint8_t byte) {
  switch (part_) {
    case Part::kField:
      return BeginField(byte);
    case Part::kFieldIndex:
      if (ContinueNumber(byte)) FinishIndex();
      return;
    case Part::kStringLength:
      part_ = Part::kStringLengthRest;
      if (BeginNumber(byte, 7)) FinishLength();
      return;
    case Part::kStringLengthRest:
      if (ContinueNumber(byte)) FinishLength();
      return;
    case Part::kString:
      return;
  }
}

void HeaderBlock::BeginField(uint8_t byte) {
  // A new size of the table counts as a field as well.
  ++num_fields_;
  const bool is_indexed = (byte & 0x80) != 0;
  const bool is_table_size = (byte & 0xE0) == 0x20;
  is_literal_ = !is_indexed && !is_table_size;
  const int prefix_bits = is_indexed ? 7 : (byte & 0x40) != 0 ? 6 : is_table_size ? 5 : 4;
  part_ = Part::kFieldIndex;
  if (BeginNumber(byte, prefix_bits)) FinishIndex();
}

void HeaderBlock::FinishIndex() {
  num_strings_left_ = !is_literal_ ? 0 : number_ == 0 ? 2 : 1;
  part_ = is_literal_ ? Part::kStringLength : Part::kField;
}

void HeaderBlock::FinishLength() {
  --num_strings_left_;
  part_ = number_ > 0 ? Part::kString : num_strings_left_ > 0 ? Part::kStringLength : Part::kField;
}

bool HeaderBlock::BeginNumber(uint8_t byte, int prefix_bits) {
  const int64_t max = (int64_t{1} << prefix_bits) - 1;
  number_ = byte & max;
  shift_ = 0;
  return number_ < max;
}

bool HeaderBlock::ContinueNumber(uint8_t byte) {
  if (shift_ > kMaxShift) {
    has_error_ = true;
    return false;
  }
  number_ += static_cast<int64_t>(byte & 0x7F) << shift_;
  shift_ += 7;
  return (byte & 0x80) == 0;
}

}  // namespace quire
