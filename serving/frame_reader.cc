// SPDX-License-Identifier: Apache-2.0

#include "serving/frame_reader.h"

#include <algorithm>

namespace quire {
namespace {

constexpr size_t kHeadSize = 9;

uint32_t Number(absl::string_view bytes) {
  uint32_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

FrameHead ParseHead(absl::string_view bytes) {
  return {.size = Number(bytes.substr(0, 3)),
          .type = static_cast<uint8_t>(bytes[3]),
          .flags = static_cast<uint8_t>(bytes[4]),
          .stream = Number(bytes.substr(5, 4)) & 0x7FFF'FFFF};
}

}  // namespace

std::optional<FrameReader::Piece> FrameReader::Next(absl::string_view* bytes) {
  if (bytes->empty()) return std::nullopt;
  const bool is_first = left_ == 0;
  if (is_first) {
    const size_t size = std::min(kHeadSize - head_bytes_.size(), bytes->size());
    head_bytes_.append(bytes->data(), size);
    bytes->remove_prefix(size);
    if (head_bytes_.size() < kHeadSize) return std::nullopt;
    head_ = ParseHead(head_bytes_);
    head_bytes_.clear();
    left_ = head_.size;
  }
  const absl::string_view payload = bytes->substr(0, left_);
  bytes->remove_prefix(payload.size());
  left_ -= static_cast<uint32_t>(payload.size());
  return Piece{.head = head_, .is_first = is_first, .payload = payload};
}

}  // namespace quire
