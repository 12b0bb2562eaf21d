#include "kv_manager/worker_link/row_record.h"

#include <cstddef>
#include <cstdint>

#include "base/worker_protocol.h"

namespace quire {
namespace {

constexpr size_t kNumberBytes = 4;
constexpr uint32_t kHasSearch = uint32_t{1} << 31;  // In the last number: the search and its size are before it.

void AddNumber(uint32_t number, std::string* bytes) {
  for (size_t i = 0; i < kNumberBytes; ++i) bytes->push_back(static_cast<char>(number >> (8 * i)));
}

// Takes a number from the end.
std::optional<uint32_t> TakeNumber(absl::string_view* bytes) {
  if (bytes->size() < kNumberBytes) return std::nullopt;
  const absl::string_view number = bytes->substr(bytes->size() - kNumberBytes);
  bytes->remove_suffix(kNumberBytes);
  uint32_t value = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) value |= uint32_t{static_cast<uint8_t>(number[i])} << (8 * i);
  return value;
}

std::string Encode(const std::string* request, int num_cached_tokens, const std::string& search) {
  const size_t num_search_bytes = search.empty() ? 0 : search.size() + kNumberBytes;
  if (request == nullptr || request->size() + num_search_bytes + kNumberBytes > kMaxRecordBytes) return "";
  std::string bytes = *request;
  if (!search.empty()) {
    bytes += search;
    AddNumber(static_cast<uint32_t>(search.size()), &bytes);
  }
  AddNumber(static_cast<uint32_t>(num_cached_tokens) | (search.empty() ? 0 : kHasSearch), &bytes);
  return bytes;
}

}  // namespace

std::string RowRecordOf(const SequenceStart& start) {
  std::string bytes = Encode(start.record.get(), start.num_cached_tokens, start.search);
  return bytes.empty() ? Encode(start.record.get(), start.num_cached_tokens, "") : bytes;
}

std::string RowRecordOf(const RecordChange& change) {
  return Encode(change.record.get(), change.num_cached_tokens, change.search);
}

std::optional<RowRecord> ReadRowRecord(absl::string_view bytes) {
  const std::optional<uint32_t> number = TakeNumber(&bytes);
  if (!number.has_value()) return std::nullopt;
  RowRecord record{.request = {}, .num_cached_tokens = static_cast<int>(*number & ~kHasSearch), .search = {}};
  if ((*number & kHasSearch) != 0) {
    const std::optional<uint32_t> size = TakeNumber(&bytes);
    if (!size.has_value() || *size == 0 || *size > bytes.size()) return std::nullopt;
    record.search = bytes.substr(bytes.size() - *size);
    bytes.remove_suffix(*size);
  }
  if (bytes.empty()) return std::nullopt;
  record.request = bytes;
  return record;
}

}  // namespace quire
