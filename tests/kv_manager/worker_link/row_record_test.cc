#include "kv_manager/worker_link/row_record.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

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

TEST(RowRecordTest, TheNumberOfMovesComesBackAndIsZeroInRecordsOfEarlierVersions) {
  SequenceStart start = StartWith("abc", 7);
  const std::string unmoved = RowRecordOf(start);
  EXPECT_EQ(unmoved, std::string("abc\7\0\0\0", 7)) << "as earlier versions write it";
  EXPECT_EQ(ReadRowRecord(unmoved)->num_moves, 0);
  start.num_moves = 3;
  for (const std::string& search : {std::string(), std::string("s\0", 2)}) {
    start.search = search;
    const std::string bytes = RowRecordOf(start);
    const std::optional<RowRecord> read = ReadRowRecord(bytes);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->request, "abc");
    EXPECT_EQ(read->num_cached_tokens, 7);
    EXPECT_EQ(read->search, search);
    EXPECT_EQ(read->num_moves, 3);
    EXPECT_EQ(RowRecordOf(RecordChange{RowId{1}, start.record, 7, search, 3}), bytes);
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
  EXPECT_FALSE(ReadRowRecord(std::string("rec\xff\xff\xff\xff\0\0\0\x80", 11)).has_value())
      << "the size of the search is too large";
  EXPECT_FALSE(ReadRowRecord(std::string("rec\xff\xff\xff\xff\0\0\0\x40", 11)).has_value()) << "too many moves";
  EXPECT_FALSE(ReadRowRecord(std::string("1\0\0\0\x40", 5)).has_value()) << "the number of moves is missing";
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
