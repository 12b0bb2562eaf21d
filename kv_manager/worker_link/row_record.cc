// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/row_record.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/worker_protocol.h"

namespace quire {
namespace {

constexpr size_t kNumberBytes = 4;
constexpr uint32_t kMaxPosition = std::numeric_limits<int32_t>::max();
constexpr uint32_t kMaxMoves = uint32_t{1} << 30;  // More than any request moves, with room to count on.
// In the last number: the search and its size are before it.
constexpr uint32_t kHasSearch = uint32_t{1} << 31;
// In the last number: the number of moves is directly before it. Earlier versions have no such number.
constexpr uint32_t kHasMoves = uint32_t{1} << 30;
// In place of the last number: the last number and then the positions of a NumericsChange are before it. No prompt has
// enough cached tokens to make the last number the same. Earlier versions do not have this either.
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

std::string Encode(const RowRecord& record) {
  std::string bytes(record.request);
  uint32_t last = static_cast<uint32_t>(record.num_cached_tokens);
  if (!record.search.empty()) {
    absl::StrAppend(&bytes, record.search);
    AddNumber(static_cast<uint32_t>(record.search.size()), &bytes);
    last |= kHasSearch;
  }
  if (record.num_moves > 0) {
    AddNumber(static_cast<uint32_t>(record.num_moves), &bytes);
    last |= kHasMoves;
  }
  AddNumber(last, &bytes);
  if (record.numerics_change.has_value()) {
    AddNumber(static_cast<uint32_t>(record.numerics_change->first), &bytes);
    AddNumber(static_cast<uint32_t>(record.numerics_change->last), &bytes);
    AddNumber(kHasNumericsChange, &bytes);
  }
  return record.request.empty() || bytes.size() > kMaxRecordBytes ? "" : bytes;
}

absl::string_view BytesOf(const std::shared_ptr<const std::string>& record) {
  return record == nullptr ? absl::string_view() : absl::string_view(*record);
}

}  // namespace

std::string RowRecordOf(const SequenceStart& start) {
  RowRecord record{BytesOf(start.record), start.num_cached_tokens, start.search, start.num_moves,
                   start.numerics_change};
  std::string bytes = Encode(record);
  if (!bytes.empty()) return bytes;
  record.search = {};
  return Encode(record);
}

std::string RowRecordOf(const RecordChange& change) {
  return Encode(
      {BytesOf(change.record), change.num_cached_tokens, change.search, change.num_moves, change.numerics_change});
}

std::optional<RowRecord> ReadRowRecord(absl::string_view bytes) {
  std::optional<uint32_t> last = TakeNumber(&bytes);
  RowRecord record;
  if (last == kHasNumericsChange) {
    const std::optional<uint32_t> last_change = TakeNumber(&bytes);
    const std::optional<uint32_t> first_change = TakeNumber(&bytes);
    last = TakeNumber(&bytes);
    if (!last.has_value() || *first_change > *last_change || *last_change > kMaxPosition) return std::nullopt;
    record.numerics_change = {.first = static_cast<int>(*first_change), .last = static_cast<int>(*last_change)};
  }
  if (!last.has_value()) return std::nullopt;
  record.num_cached_tokens = static_cast<int>(*last & ~(kHasSearch | kHasMoves));
  if ((*last & kHasMoves) != 0) {
    const std::optional<uint32_t> num_moves = TakeNumber(&bytes);
    if (!num_moves.has_value() || *num_moves > kMaxMoves) return std::nullopt;
    record.num_moves = static_cast<int>(*num_moves);
  }
  if ((*last & kHasSearch) != 0) {
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
