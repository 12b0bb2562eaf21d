// SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/decoder.h"
#include "kv_manager/tokenizer/post_processor.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Strings = std::vector<std::string>;

TEST(PostProcessorTest, TheStepsOfASequenceWrapEachOther) {
  const json document = json::parse(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},
      {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"B"}},{"Sequence":{"id":"A"}}],
       "special_tokens":{"B":{"ids":[7,8]}}},
      {"type":"BertProcessing","cls":["C",1],"sep":["S",2]}]})");
  const auto processor = PostProcessor::Parse(JsonValue(document, ""));
  ASSERT_TRUE(processor.ok()) << processor.status();
  EXPECT_THAT(processor->prefix, ElementsAre(1, 7, 8));
  EXPECT_THAT(processor->suffix, ElementsAre(2));
}

TEST(PostProcessorTest, ATemplateUsesThePromptOnce) {
  const json document = json::parse(R"({"type":"TemplateProcessing","single":[],"special_tokens":{}})");
  EXPECT_THAT(PostProcessor::Parse(JsonValue(document, "post")).status().message(),
              HasSubstr("post: \"single\" uses the prompt 0 times, not once"));
}

// The text that each token adds, and the text that the end adds.
Strings Decode(const std::string& config, const Strings& tokens) {
  const json document = json::parse(config);
  const auto decoder = Decoder::Parse(JsonValue(document, "decoder"));
  if (!decoder.ok()) return {std::string(decoder.status().message())};
  DecoderStream stream(&*decoder);
  Strings added;
  for (const std::string& token : tokens) stream.Push(token, &added.emplace_back());
  stream.Finish(&added.emplace_back());
  return added;
}

TEST(DecoderTest, WithoutADecoderTokensAreJoinedWithSpaces) {
  EXPECT_EQ(Decode("null", {"a", "b"}), Strings({"a", " b", ""}));
}

TEST(DecoderTest, ByteLevelKeepsAnIncompleteCharacter) {
  EXPECT_EQ(Decode(R"({"type":"ByteLevel"})", {"\u00C3", "\u00A9\u0120", "\u00C3"}),
            Strings({"", "\u00E9 ", "", "\uFFFD"}));
}

TEST(DecoderTest, ARunOfByteTokensStandsOrFallsAsAWhole) {
  const std::string fallback = R"({"type":"ByteFallback"})";
  EXPECT_EQ(Decode(fallback, {"<0xC3>", "<0xA9>", "a"}), Strings({"", "", "\u00E9a", ""}));
  EXPECT_EQ(Decode(fallback, {"<0xC3>", "<0xA9>", "<0xFF>"}), Strings({"", "", "", "\uFFFD\uFFFD\uFFFD"}));
  EXPECT_EQ(Decode(fallback, {"<0xC>", "<0xGG>"}), Strings({"<0xC>", "<0xGG>", ""}));
}

TEST(DecoderTest, MetaspaceDropsTheFirstSpaceOnly) {
  EXPECT_EQ(Decode(R"({"type":"Metaspace","replacement":"_"})", {"_a", "_b"}), Strings({"a", " b", ""}));
  EXPECT_EQ(Decode(R"({"type":"Metaspace","replacement":"_","prepend_scheme":"never"})", {"_a"}), Strings({" a", ""}));
}

TEST(DecoderTest, StepsBehindFuseSeeOneGrowingText) {
  const std::string fuse = R"({"type":"Sequence","decoders":[{"type":"Fuse"},)";
  EXPECT_EQ(Decode(fuse + R"({"type":"Strip","content":" ","start":1,"stop":1}]})", {" ", " a ", "b", " ", " "}),
            Strings({"", " a", " b", "", " ", ""}));
  EXPECT_EQ(Decode(fuse + R"({"type":"Replace","pattern":{"String":"ab"},"content":"X"}]})", {"a", "b", "aa", "c"}),
            Strings({"", "X", "a", "ac", ""}));
  EXPECT_EQ(Decode(fuse + R"({"type":"Replace","pattern":{"Regex":"a+$"},"content":"X"}]})", {"a", "b", "aa"}),
            Strings({"", "", "", "abX"}));
  EXPECT_EQ(Decode(fuse + R"({"type":"ByteFallback"}]})", {"<0x", "41>"}), Strings({"", "", "A"}));
  EXPECT_EQ(Decode(fuse + R"({"type":"ByteLevel"}]})", {"\u0120", "a"}), Strings({"", "", " a"}));
}

TEST(DecoderTest, StripBeforeFuseSeesEachToken) {
  EXPECT_EQ(Decode(R"({"type":"Strip","content":"_","start":1,"stop":2})", {"__a_", "___", "b"}),
            Strings({"_a", "", "b", ""}));
}

TEST(DecoderTest, ReplacementsCannotBlowATextUp) {
  json steps = json::array();
  for (int i = 0; i < 20; ++i) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  }
  const std::string config = json{{"type", "Sequence"}, {"decoders", steps}}.dump();
  EXPECT_EQ(Decode(config, {}), Strings({"decoder: makes a text more than 65536 times longer"}));
  EXPECT_EQ(Decode(R"({"type":"CTC"})", {}), Strings({"decoder: decoder type \"CTC\" is not supported"}));
}

}  // namespace
}  // namespace quire
