#include "kv_manager/worker_link/row_record.h"

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/worker_protocol.h"

namespace quire {
namespace {

constexpr size_t kNumberBytes = 4;

}  // namespace

std::string RowRecordOf(const SequenceStart& start) {
  if (start.record == nullptr || start.record->size() + kNumberBytes > kMaxRecordBytes) return "";
  std::string bytes = *start.record;
  for (size_t i = 0; i < kNumberBytes; ++i) {
    bytes.push_back(static_cast<char>(static_cast<uint32_t>(start.num_cached_tokens) >> (8 * i)));
  }
  return bytes;
}

std::optional<RowRecord> ReadRowRecord(absl::string_view bytes) {
  if (bytes.size() <= kNumberBytes) return std::nullopt;
  const absl::string_view number = bytes.substr(bytes.size() - kNumberBytes);
  uint32_t num_cached_tokens = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) {
    num_cached_tokens |= uint32_t{static_cast<uint8_t>(number[i])} << (8 * i);
  }
  if (num_cached_tokens > static_cast<uint32_t>(std::numeric_limits<int>::max())) return std::nullopt;
  return RowRecord{bytes.substr(0, bytes.size() - kNumberBytes), static_cast<int>(num_cached_tokens)};
}

}  // namespace quire
