// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/batch_packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status_reason.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kLargeMessage = 16 << 20;

v1::GenerateBatchEntry Entry(uint64_t tag, size_t num_bytes = 1) {
  v1::GenerateBatchEntry entry;
  entry.set_tag(tag);
  entry.mutable_response()->set_text_delta(std::string(num_bytes, 'a'));
  return entry;
}

std::vector<uint64_t> Tags(const v1::GenerateBatchResponse* message) {
  std::vector<uint64_t> tags;
  if (message == nullptr) return tags;
  for (const v1::GenerateBatchEntry& entry : message->entries()) tags.push_back(entry.tag());
  return tags;
}

void Ignore(bool /*ok*/) {}

TEST(BatchPackerTest, EntriesThatComeTogetherLeaveInOneMessage) {
  BatchPacker packer(kLargeMessage);
  EXPECT_EQ(packer.StartWrite(), nullptr);
  packer.AddResponse(Entry(1), Ignore);
  packer.AddResponse(Entry(2), Ignore);
  EXPECT_THAT(Tags(packer.StartWrite()), ElementsAre(1, 2));
}

TEST(BatchPackerTest, EntriesThatComeDuringAWriteGatherForTheNextMessage) {
  BatchPacker packer(kLargeMessage);
  packer.AddResponse(Entry(1), Ignore);
  const v1::GenerateBatchResponse* const first = packer.StartWrite();
  packer.AddResponse(Entry(2), Ignore);
  packer.AddResponse(Entry(3), Ignore);
  EXPECT_EQ(packer.StartWrite(), nullptr) << "a write is under way";
  EXPECT_THAT(Tags(first), ElementsAre(1)) << "it stays as it is";
  EXPECT_FALSE(packer.is_empty());
  packer.FinishWrite();
  EXPECT_THAT(Tags(packer.StartWrite()), ElementsAre(2, 3));
  packer.FinishWrite();
  EXPECT_TRUE(packer.is_empty());
}

TEST(BatchPackerTest, AMessageThatWouldBecomeTooLargeIsSplit) {
  BatchPacker packer(kLargeMessage);
  const size_t third = BatchPacker::kMessageBytes / 3;
  for (int tag = 1; tag <= 4; ++tag) packer.AddResponse(Entry(tag, third), Ignore);
  const v1::GenerateBatchResponse* message = packer.StartWrite();
  EXPECT_THAT(Tags(message), ElementsAre(1, 2));
  EXPECT_LE(message->ByteSizeLong(), BatchPacker::kMessageBytes);
  packer.FinishWrite();
  EXPECT_THAT(Tags(packer.StartWrite()), ElementsAre(3, 4));
}

TEST(BatchPackerTest, TheLimitOfGrpcIsKeptByEveryMessage) {
  constexpr size_t kLimit = 1000;
  BatchPacker packer(kLimit);
  for (int tag = 1; tag <= 20; ++tag) packer.AddResponse(Entry(tag, 10 * tag), Ignore);
  int num_entries = 0;
  while (const v1::GenerateBatchResponse* message = packer.StartWrite()) {
    EXPECT_LE(message->ByteSizeLong(), kLimit);
    num_entries += message->entries_size();
    packer.FinishWrite();
  }
  EXPECT_EQ(num_entries, 20);
}

TEST(BatchPackerTest, AnEntryThatFitsIntoNoMessageIsRefused) {
  const BatchPacker packer(1000);
  EXPECT_TRUE(packer.CheckSize(Entry(1, 900)).ok());
  const absl::Status status = packer.CheckSize(Entry(1, 1000));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status)->word, "RESPONSE_TOO_LARGE");
  EXPECT_EQ(ReasonOf(status)->metadata.at("max_message_bytes"), "1000");
}

TEST(BatchPackerTest, EndsAreUnreadUntilTheirMessageIsWritten) {
  BatchPacker packer(kLargeMessage);
  packer.AddEnd(Entry(1), Ignore);
  packer.AddResponse(Entry(2), Ignore);
  EXPECT_EQ(packer.num_unread_ends(), 1u);
  packer.StartWrite();
  packer.AddEnd(Entry(3), Ignore);
  EXPECT_EQ(packer.num_unread_ends(), 2u);
  packer.FinishWrite();
  EXPECT_EQ(packer.num_unread_ends(), 1u);
}

TEST(BatchPackerTest, FinishWriteReturnsTheCallbacksOfItsMessageOnly) {
  BatchPacker packer(kLargeMessage);
  std::vector<std::string> told;
  const auto note = [&told](const std::string& name) {
    return [&told, name](bool ok) { told.push_back(name + (ok ? " written" : " dropped")); };
  };
  packer.AddResponse(Entry(1), note("first"));
  packer.AddEnd(Entry(2), note("second"));
  packer.StartWrite();
  packer.AddResponse(Entry(3), note("third"));
  for (const BatchPacker::OnWritten& tell : packer.FinishWrite()) tell(true);
  EXPECT_THAT(told, ElementsAre("first written", "second written"));
}

TEST(BatchPackerTest, DroppingLeavesTheWriteUnderWay) {
  BatchPacker packer(kLargeMessage);
  int num_dropped = 0;
  packer.AddEnd(Entry(1), Ignore);
  packer.StartWrite();
  packer.AddResponse(Entry(2), [&](bool ok) { num_dropped += !ok; });
  packer.AddEnd(Entry(3), [&](bool ok) { num_dropped += !ok; });
  for (const BatchPacker::OnWritten& tell : packer.DropWaiting()) tell(false);
  EXPECT_EQ(num_dropped, 2);
  EXPECT_TRUE(packer.is_writing());
  EXPECT_EQ(packer.num_unread_ends(), 1u);
  packer.FinishWrite();
  EXPECT_TRUE(packer.is_empty());
  EXPECT_THAT(Tags(packer.StartWrite()), IsEmpty());
}

}  // namespace
}  // namespace quire
