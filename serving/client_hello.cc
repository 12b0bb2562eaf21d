// SPDX-License-Identifier: Apache-2.0

#include "serving/client_hello.h"

#include <algorithm>
#include <cstdint>

namespace quire {
namespace {

constexpr char kHandshake = 22;
constexpr size_t kRecordHeadSize = 5;   // Type, version and size.
constexpr size_t kMessageHeadSize = 6;  // Type and size of the message, and a version.

}  // namespace

std::optional<std::string> ClientHello::Add(absl::string_view bytes) {
  while (!is_over_ && !bytes.empty()) {
    if (left_in_record_ == 0) {
      record_head_ += bytes.front();
      bytes.remove_prefix(1);
      if (record_head_.front() != kHandshake) is_over_ = true;
      if (record_head_.size() < kRecordHeadSize) continue;
      left_in_record_ =
          static_cast<size_t>(static_cast<uint8_t>(record_head_[3])) << 8 | static_cast<uint8_t>(record_head_[4]);
      record_head_.clear();
      continue;
    }
    const size_t missing = kMessageHeadSize + kRandomSize - message_.size();
    const absl::string_view part = bytes.substr(0, std::min(left_in_record_, missing));
    message_.append(part.data(), part.size());
    bytes.remove_prefix(part.size());
    left_in_record_ -= part.size();
    if (part.size() < missing) continue;
    is_over_ = true;
    return message_.substr(kMessageHeadSize);
  }
  return std::nullopt;
}

}  // namespace quire
