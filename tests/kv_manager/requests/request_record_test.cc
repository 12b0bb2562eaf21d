// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_record.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_replace.h"
#include "kv_manager/requests/resume_token.h"
#include "tests/kv_manager/requests/toy_model.h"

namespace quire {
namespace {

SealKey Key(char letter = 'k') {
  return SealKey::FromSecret(std::string(32, letter)).value();
}

RequestRecord Record() {
  RequestRecord record{.identity = {.owner = "acme", .name = "r1", .tenant = "gold", .digest = {1, 10, 255}},
                       .nonce = 18446744073709551615u,
                       .cache_salt = std::string("salt\nwith\0all\xff", 14),
                       .arrival_unix_us = 123456789,
                       .deadline_unix_us = 987654321,
                       .request = {}};
  record.request.set_text("a prompt\nof two lines");
  record.request.mutable_stopping()->add_stop("\n\n");
  return record;
}

TEST(RequestRecordTest, TheNextManagerReadsWhatWasWritten) {
  for (const bool has_deadline : {true, false}) {
    RequestRecord record = Record();
    if (!has_deadline) record.deadline_unix_us.reset();
    const std::optional<RequestRecord> read = DecodeRequestRecord(EncodeRequestRecord(record, Key()), Key());
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->identity.owner, "acme");
    EXPECT_EQ(read->identity.name, "r1");
    EXPECT_EQ(read->identity.tenant, "gold");
    EXPECT_EQ(read->identity.digest, record.identity.digest);
    EXPECT_EQ(read->nonce, record.nonce);
    EXPECT_EQ(read->cache_salt, record.cache_salt);
    EXPECT_EQ(read->arrival_unix_us, record.arrival_unix_us);
    EXPECT_EQ(read->deadline_unix_us, record.deadline_unix_us);
    EXPECT_EQ(read->request.SerializeAsString(), record.request.SerializeAsString());
  }
}

TEST(RequestRecordTest, PinsAreKeptAsTokens) {
  RequestRecord record = Record();
  record.pins = {{.num_tokens = 64, .ttl_us = 300'000'000}, {.num_tokens = 0, .ttl_us = 86'400'000'000}};
  const std::optional<RequestRecord> read = DecodeRequestRecord(EncodeRequestRecord(record, Key()), Key());
  ASSERT_TRUE(read.has_value());
  ASSERT_EQ(read->pins.size(), 2u);
  EXPECT_EQ(read->pins[0].num_tokens, 64);
  EXPECT_EQ(read->pins[0].ttl_us, 300'000'000);
  EXPECT_EQ(read->pins[1].num_tokens, 0);
  EXPECT_EQ(read->pins[1].ttl_us, 86'400'000'000);
  EXPECT_EQ(read->deadline_unix_us, record.deadline_unix_us);
  EXPECT_EQ(read->request.SerializeAsString(), record.request.SerializeAsString());
}

TEST(RequestRecordTest, PinsThatAreNoNumbersMakeNoRecord) {
  RequestRecord record = Record();
  record.pins = {{.num_tokens = 64, .ttl_us = 300'000'000}};
  const SealKey key = Key().For("request record");
  const std::string message = key.Open(EncodeRequestRecord(record, Key())).value();
  for (const char* const wrong : {"64", "64 x", "", "64 300000000 1"}) {
    const std::string changed = absl::StrReplaceAll(message, {{"64 300000000", wrong}});
    EXPECT_FALSE(DecodeRequestRecord(key.Seal(changed), Key()).has_value()) << wrong;
  }
}

TEST(RequestRecordTest, AConversationIsLeftOutLikeAnyPrompt) {
  v1::GenerateRequest request;
  request.mutable_chat()->add_messages()->set_content("a secret");
  request.add_pins()->set_num_messages(1);
  EXPECT_EQ(WithoutPrompt(request, {}).prompt_case(), v1::GenerateRequest::PROMPT_NOT_SET);
  EXPECT_EQ(WithoutPrompt(request, {}).pins_size(), 0);
  ValidRequest echoed;
  echoed.echo = Echo::kText;
  echoed.prompt_text = "<s>a secret";
  EXPECT_EQ(WithoutPrompt(request, echoed).text(), "<s>a secret");
}

TEST(RequestRecordTest, OnlyTheHolderOfTheKeyMakesARecord) {
  const std::string bytes = EncodeRequestRecord(Record(), Key());
  EXPECT_FALSE(DecodeRequestRecord(bytes, Key('l')).has_value());
  EXPECT_FALSE(DecodeRequestRecord("", Key()).has_value());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(DecodeRequestRecord(changed, Key()).has_value()) << i;
    EXPECT_FALSE(DecodeRequestRecord(bytes.substr(0, i), Key()).has_value()) << i;
  }
}

TEST(RequestRecordTest, WhatWasSealedForAnotherPurposeIsNoRecord) {
  const std::string bytes = EncodeRequestRecord(Record(), Key());
  const std::string message = Key().For("request record").Open(bytes).value();
  EXPECT_TRUE(DecodeRequestRecord(Key().For("request record").Seal(message), Key()).has_value());
  EXPECT_FALSE(DecodeRequestRecord(Key().For("resume token").Seal(message), Key()).has_value());
  EXPECT_FALSE(DecodeRequestRecord(Key().Seal(message), Key()).has_value());
}

TEST(RequestRecordTest, ThePromptIsLeftOutUnlessItIsEchoedAndDefaultsAreWrittenDown) {
  const auto model = ToyModel();
  v1::GenerateRequest request;
  request.set_text("prompt");
  request.set_request_id("r1");
  request.set_tenant("gold");
  request.set_cache_salt("salt");
  request.mutable_stopping()->add_stop("end");
  const auto valid = ValidateGenerate(request, *model, RequestLimits(), /*drawn_seed=*/77);
  ASSERT_TRUE(valid.ok()) << valid.status();
  const v1::GenerateRequest kept = WithoutPrompt(request, *valid);
  EXPECT_FALSE(kept.has_text());
  EXPECT_TRUE(kept.tenant().empty()) << "the record has it once";
  EXPECT_TRUE(kept.cache_salt().empty());
  EXPECT_EQ(kept.request_id(), "r1");
  EXPECT_EQ(kept.stopping().stop(0), "end");
  EXPECT_EQ(kept.stopping().max_tokens(), uint32_t{kDefaultMaxTokens});
  EXPECT_EQ(kept.sampling().seed(), 77u);
  EXPECT_EQ(kept.sampling().temperature(), valid->request.sampling.temperature);

  request.mutable_stopping()->set_max_tokens(0);
  const auto scored = ValidateGenerate(request, *model, RequestLimits(), /*drawn_seed=*/77);
  ASSERT_TRUE(scored.ok()) << scored.status();
  EXPECT_EQ(WithoutPrompt(request, *scored).stopping().max_tokens(), 0u);

  request.set_echo(true);
  const auto echoed = ValidateGenerate(request, *model, RequestLimits(), /*drawn_seed=*/77);
  EXPECT_EQ(WithoutPrompt(request, *echoed).text(), "prompt");
  request.mutable_token_ids()->add_ids(5);
  const auto tokens = ValidateGenerate(request, *model, RequestLimits(), /*drawn_seed=*/77);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_FALSE(WithoutPrompt(request, *tokens).has_token_ids());
  EXPECT_FALSE(WithoutPrompt(request, *tokens).has_text());
}

}  // namespace
}  // namespace quire
