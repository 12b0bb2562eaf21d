// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/message_parts.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "quire/v1/inference.pb.h"

namespace quire {
namespace {

template <typename Message>
bool HasMore(const std::string& encoded, int limit) {
  google::protobuf::io::ArrayInputStream stream(encoded.data(), static_cast<int>(encoded.size()), /*block_size=*/7);
  return HasMoreParts(*Message::descriptor(), &stream, limit);
}

// Whether a message has exactly this number of parts.
template <typename Message>
testing::AssertionResult HasParts(const std::string& encoded, int count) {
  if (HasMore<Message>(encoded, count)) return testing::AssertionFailure() << "there are more than " << count;
  if (count > 0 && !HasMore<Message>(encoded, count - 1)) {
    return testing::AssertionFailure() << "there are less than " << count;
  }
  return testing::AssertionSuccess();
}

TEST(MessagePartsTest, MessagesAndStringsCountAtEveryDepth) {
  v1::GenerateRequest request;
  EXPECT_TRUE(HasParts<v1::GenerateRequest>(request.SerializeAsString(), 0));
  request.set_request_id("a name");
  request.mutable_stopping()->add_stop("x");
  request.mutable_stopping()->add_stop("");
  EXPECT_TRUE(HasParts<v1::GenerateRequest>(request.SerializeAsString(), 4));
  v1::ChatMessage* const message = request.mutable_chat()->add_messages();
  message->set_role("assistant");
  for (int i = 0; i < 10; ++i) message->add_tool_calls();
  EXPECT_TRUE(HasParts<v1::GenerateRequest>(request.SerializeAsString(), 4 + 1 + 1 + 1 + 10));
  v1::GenerateBatchRequest batch;
  *batch.mutable_start() = request;
  batch.set_tag(1);
  EXPECT_TRUE(HasParts<v1::GenerateBatchRequest>(batch.SerializeAsString(), 1 + 17));
}

TEST(MessagePartsTest, EntriesOfMapsCount) {
  v1::SamplingParams sampling;
  for (int i = 0; i < 20; ++i) (*sampling.mutable_logit_bias())[i] = 1;
  EXPECT_TRUE(HasParts<v1::SamplingParams>(sampling.SerializeAsString(), 20));
}

TEST(MessagePartsTest, PackedNumbersAreNotParts) {
  v1::GenerateRequest request;
  for (int i = 0; i < 1000; ++i) request.mutable_token_ids()->add_ids(i);
  request.set_n(3);
  EXPECT_TRUE(HasParts<v1::GenerateRequest>(request.SerializeAsString(), 1)) << "the message with the ids";
}

TEST(MessagePartsTest, UnknownFieldsOfEveryKindCount) {
  std::string encoded;
  for (const char* field : {"\x98\x06\x01",                              // Field 99 as a number,
                            "\x99\x06\x01\x02\x03\x04\x05\x06\x07\x08",  // as 8 bytes,
                            "\x9d\x06\x01\x02\x03\x04",                  // as 4 bytes,
                            "\x9a\x06\x02zz"}) {                         // and as a string.
    encoded += field;
    EXPECT_TRUE(HasParts<v1::AbortRequest>(encoded, 1)) << testing::PrintToString(encoded);
    encoded.clear();
  }
  // A group with a number, and with a group that has a string.
  EXPECT_TRUE(HasParts<v1::AbortRequest>("\x9b\x06\x08\x01\x13\x0a\x01x\x14\x9c\x06", 4));
}

TEST(ReadIntegersTest, ReadsThoseOfTheMessageItself) {
  v1::GenerateBatchRequest batch;
  batch.mutable_start()->set_n(3);
  batch.set_timeout_ms(uint64_t{1} << 40);
  std::string encoded = batch.SerializeAsString();
  v1::GenerateBatchRequest tag;
  tag.set_tag(7);
  encoded += tag.SerializeAsString();
  google::protobuf::io::ArrayInputStream stream(encoded.data(), static_cast<int>(encoded.size()));
  v1::GenerateBatchRequest read;
  ReadIntegers(&stream, &read);
  EXPECT_EQ(read.tag(), 7u);
  EXPECT_EQ(read.timeout_ms(), uint64_t{1} << 40);
  EXPECT_FALSE(read.has_start());
}

TEST(MessagePartsTest, BrokenEncodingsEndTheCount) {
  v1::GenerateRequest request;
  for (int i = 0; i < 50; ++i) request.mutable_chat()->add_messages()->set_role("user");
  const std::string encoded = request.SerializeAsString();
  EXPECT_TRUE(HasParts<v1::GenerateRequest>(encoded, 101));
  for (size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_FALSE(HasMore<v1::GenerateRequest>(encoded.substr(0, size), 101)) << size;
  }
  EXPECT_FALSE(HasMore<v1::GenerateRequest>("\x0a\xff\xff\xff\xff\x0f", 101));
  EXPECT_FALSE(HasMore<v1::AbortRequest>(std::string(10000, '\x0b'), 10000)) << "groups in each other without end";
}

}  // namespace
}  // namespace quire
