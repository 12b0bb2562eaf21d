#include "kv_manager/worker_link/row_record.h"

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/worker_protocol.h"

namespace quire {
namespace {

constexpr size_t kNumberBytes = 4;
constexpr uint32_t kHasSearch = uint32_t{1} << 31;  // In the last number: the search and its size are before it.
constexpr uint32_t kMaxPosition = std::numeric_limits<int32_t>::max();
// In place of the last number: the positions of a NumericsChange and then the last number are before it. No prompt has
// so many cached tokens that the last number would be the same.
constexpr uint32_t kHasNumericsChange = ~uint32_t{0};

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

std::string Encode(const std::string* request, int num_cached_tokens, const std::string& search,
                   const std::optional<NumericsChange>& change) {
  const size_t num_search_bytes = search.empty() ? 0 : search.size() + kNumberBytes;
  const size_t num_number_bytes = change.has_value() ? 4 * kNumberBytes : kNumberBytes;
  if (request == nullptr || request->size() + num_search_bytes + num_number_bytes > kMaxRecordBytes) return "";
  std::string bytes = *request;
  if (!search.empty()) {
    bytes += search;
    AddNumber(static_cast<uint32_t>(search.size()), &bytes);
  }
  AddNumber(static_cast<uint32_t>(num_cached_tokens) | (search.empty() ? 0 : kHasSearch), &bytes);
  if (!change.has_value()) return bytes;
  AddNumber(static_cast<uint32_t>(change->first), &bytes);
  AddNumber(static_cast<uint32_t>(change->last), &bytes);
  AddNumber(kHasNumericsChange, &bytes);
  return bytes;
}

}  // namespace

std::string RowRecordOf(const SequenceStart& start) {
  const std::string* const record = start.record.get();
  std::string bytes = Encode(record, start.num_cached_tokens, start.search, start.numerics_change);
  return bytes.empty() ? Encode(record, start.num_cached_tokens, "", start.numerics_change) : bytes;
}

std::string RowRecordOf(const RecordChange& change) {
  return Encode(change.record.get(), change.num_cached_tokens, change.search, change.numerics_change);
}

std::optional<RowRecord> ReadRowRecord(absl::string_view bytes) {
  std::optional<uint32_t> number = TakeNumber(&bytes);
  std::optional<NumericsChange> change;
  if (number == kHasNumericsChange) {
    const std::optional<uint32_t> last = TakeNumber(&bytes);
    const std::optional<uint32_t> first = TakeNumber(&bytes);
    number = TakeNumber(&bytes);
    if (!number.has_value() || *first > *last || *last > kMaxPosition) return std::nullopt;
    change = {.first = static_cast<int>(*first), .last = static_cast<int>(*last)};
  }
  if (!number.has_value()) return std::nullopt;
  RowRecord record{.request = {},
                   .num_cached_tokens = static_cast<int>(*number & ~kHasSearch),
                   .search = {},
                   .numerics_change = change};
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
