// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/row_record.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "base/worker_protocol.h"
#include "kv_manager/worker_link/cache_root.h"

namespace quire {
namespace {

SequenceStart StartWith(const std::string& record, int num_cached_tokens) {
  SequenceStart start{};
  start.record = std::make_shared<const std::string>(record);
  start.num_cached_tokens = num_cached_tokens;
  return start;
}

TEST(RowRecordTest, TheRecordAndTheNumberComeBack) {
  for (const int number : {0, 1, 255, 256, 1073741823}) {
    const std::string bytes = RowRecordOf(StartWith(std::string("a\0b", 3), number));
    const std::optional<RowRecord> read = ReadRowRecord(bytes);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->request, std::string("a\0b", 3));
    EXPECT_EQ(read->num_cached_tokens, number);
  }
}

TEST(RowRecordTest, TheSearchComesBackAndIsLeftOutOfAStartWhereItDoesNotFit) {
  SequenceStart start = StartWith("abc", 7);
  start.search = std::string("s\0", 2);
  const std::string bytes = RowRecordOf(start);
  const std::optional<RowRecord> read = ReadRowRecord(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->request, "abc");
  EXPECT_EQ(read->num_cached_tokens, 7);
  EXPECT_EQ(read->search, start.search);
  EXPECT_EQ(RowRecordOf(RecordChange{RowId{1}, start.record, 7, start.search}), bytes);
  start.search.resize(kMaxRecordBytes);
  EXPECT_EQ(RowRecordOf(start), RowRecordOf(StartWith("abc", 7)));
  EXPECT_EQ(RowRecordOf(RecordChange{RowId{1}, start.record, 7, start.search}), "");
}

TEST(RowRecordTest, RecordsOfTheLastReleaseComeBack) {
  const std::string plain("abc\7\0\0\0", 7);
  EXPECT_EQ(RowRecordOf(StartWith("abc", 7)), plain) << "a request that has not moved has such a record";
  EXPECT_EQ(ReadRowRecord(plain)->request, "abc");
  EXPECT_EQ(ReadRowRecord(plain)->num_cached_tokens, 7);
  EXPECT_EQ(ReadRowRecord(plain)->num_moves, 0);
  EXPECT_EQ(ReadRowRecord(plain)->numerics_change, std::nullopt);
  const std::optional<RowRecord> of_search = ReadRowRecord(absl::string_view("abcdef\3\0\0\0\7\0\0\x80", 14));
  ASSERT_TRUE(of_search.has_value());
  EXPECT_EQ(of_search->request, "abc");
  EXPECT_EQ(of_search->num_cached_tokens, 7);
  EXPECT_EQ(of_search->search, "def");
  EXPECT_EQ(of_search->num_moves, 0);
  EXPECT_EQ(of_search->numerics_change, std::nullopt);
}

TEST(RowRecordTest, AllThatARecordTellsComesBackInAllCombinations) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  SequenceStart start = StartWith("abc", 7);
  std::set<std::string> all;
  for (const std::string& search : {std::string(), std::string("s\0", 2)}) {
    for (const int num_moves : {0, 1, 1 << 30}) {
      for (const std::optional<NumericsChange>& change :
           {std::optional<NumericsChange>(), std::optional(NumericsChange{.first = 5, .last = 5}),
            std::optional(NumericsChange{.first = 5, .last = kMaxInt})}) {
        start.search = search;
        start.num_moves = num_moves;
        start.numerics_change = change;
        const std::string bytes = RowRecordOf(start);
        const std::optional<RowRecord> read = ReadRowRecord(bytes);
        ASSERT_TRUE(read.has_value());
        EXPECT_EQ(read->request, "abc");
        EXPECT_EQ(read->num_cached_tokens, 7);
        EXPECT_EQ(read->search, search);
        EXPECT_EQ(read->num_moves, num_moves);
        EXPECT_EQ(read->numerics_change, change);
        EXPECT_EQ(RowRecordOf(RecordChange{RowId{1}, start.record, 7, search, num_moves, change}), bytes);
        EXPECT_TRUE(all.insert(bytes).second) << "two records are equal";
      }
    }
  }
}

TEST(RowRecordTest, OnlyTheSearchIsLeftOutWhereTheNumbersNeedItsRoom) {
  SequenceStart start = StartWith("", 7);
  start.search = "search";
  start.num_moves = 1;
  for (const bool has_change : {false, true}) {
    if (has_change) start.numerics_change = {.first = 5, .last = 6};
    const size_t num_bytes = kMaxRecordBytes - (has_change ? 20 : 8);
    start.record = std::make_shared<const std::string>(num_bytes, 'r');
    EXPECT_EQ(RowRecordOf(start).size(), size_t{kMaxRecordBytes});
    EXPECT_EQ(ReadRowRecord(RowRecordOf(start))->num_moves, 1);
    EXPECT_EQ(ReadRowRecord(RowRecordOf(start))->numerics_change, start.numerics_change);
    start.record = std::make_shared<const std::string>(num_bytes + 1, 'r');
    EXPECT_EQ(RowRecordOf(start), "");
  }
}

TEST(RowRecordTest, ARecordThatIsTooLongForARowIsLeftOut) {
  const std::string longest(kMaxRecordBytes - 4, 'r');
  EXPECT_EQ(RowRecordOf(StartWith(longest, 1)).size(), size_t{kMaxRecordBytes});
  EXPECT_EQ(RowRecordOf(StartWith(longest + "r", 1)), "");
  EXPECT_EQ(RowRecordOf(SequenceStart{}), "");
}

TEST(RowRecordTest, OtherBytesAreNoRecord) {
  EXPECT_FALSE(ReadRowRecord("").has_value());
  EXPECT_FALSE(ReadRowRecord("1234").has_value()) << "a number without a record";
  EXPECT_FALSE(ReadRowRecord(absl::string_view("rec\xff\xff\xff\xff\0\0\0\x80", 11)).has_value())
      << "the size of the search is too large";
  EXPECT_FALSE(ReadRowRecord(absl::string_view("rec\1\0\0\x40\0\0\0\x40", 11)).has_value()) << "too many moves";
  EXPECT_FALSE(ReadRowRecord(absl::string_view("1\0\0\0\x40", 5)).has_value()) << "the number of moves is missing";
  EXPECT_FALSE(ReadRowRecord(absl::string_view("abc\0\0\0\0\2\0\0\0\1\0\0\0\xff\xff\xff\xff", 19)).has_value())
      << "the first change is behind the last one";
  EXPECT_FALSE(ReadRowRecord("abcd1234\xff\xff\xff\xff").has_value()) << "a number is missing";
}

TEST(CacheRootTest, OnlyTheNameOfASharedRootTellsItsSalt) {
  const std::string salt("s\0\n", 3);
  EXPECT_EQ(SaltOfRoot(NameOf({.is_private = false, .salt = salt})), salt);
  EXPECT_EQ(SaltOfRoot(NameOf({.is_private = false, .salt = ""})), "");
  EXPECT_EQ(SaltOfRoot(NameOf({.is_private = true, .salt = salt})), std::nullopt);
  EXPECT_NE(NameOf({.is_private = true, .salt = salt}), NameOf({.is_private = false, .salt = salt}));
  EXPECT_EQ(SaltOfRoot(""), std::nullopt);
}

}  // namespace
}  // namespace quire
