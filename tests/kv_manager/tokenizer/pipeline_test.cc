// The parts of a tokenizer.json around the model: normalizer, added tokens, pre-tokenizer, post-processor, decoder.

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/added_vocabulary.h"
#include "kv_manager/tokenizer/decoder.h"
#include "kv_manager/tokenizer/normalizer.h"
#include "kv_manager/tokenizer/post_processor.h"
#include "kv_manager/tokenizer/pre_tokenizer.h"
#include "kv_manager/tokenizer/utf8.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Strings = std::vector<std::string>;

TextPiece PieceOf(const std::string& text) {
  TextPiece piece;
  piece.text = text;
  piece.num_origin_bytes = text.empty() ? 0 : Utf8Length(text.front());
  piece.starts_at_origin = true;
  piece.max_bytes = 1000;
  return piece;
}

std::string Normalize(const std::string& config, const std::string& text) {
  const json document = json::parse(config);
  const auto normalizer = Normalizer::Parse(JsonValue(document, "normalizer"));
  if (!normalizer.ok()) return std::string(normalizer.status().message());
  TextPiece piece = PieceOf(text);
  const absl::Status status = (*normalizer)->Normalize(&piece);
  return status.ok() ? piece.text : std::string(status.message());
}

Strings Split(const std::string& config, const std::string& text) {
  const json document = json::parse(config);
  const auto pre_tokenizer = PreTokenizer::Parse(JsonValue(document, "pre_tokenizer"));
  if (!pre_tokenizer.ok()) return {std::string(pre_tokenizer.status().message())};
  std::vector<TextPiece> pieces = {PieceOf(text)};
  EXPECT_TRUE((*pre_tokenizer)->Split(&pieces).ok());
  Strings words;
  for (const TextPiece& piece : pieces) words.push_back(piece.text);
  return words;
}

TEST(NormalizerTest, EachKindRewritesTheText) {
  EXPECT_EQ(Normalize(R"({"type":"Prepend","prepend":"_"})", "a"), "_a");
  EXPECT_EQ(Normalize(R"({"type":"Prepend","prepend":"_"})", ""), "") << "nothing is put in front of nothing";
  EXPECT_EQ(Normalize(R"({"type":"Replace","pattern":{"String":"aa"},"content":"b"})", "aaa"), "ba");
  EXPECT_EQ(Normalize(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})", "a   b c"), "a b c");
  EXPECT_EQ(Normalize(R"({"type":"NFC"})", "e\u0301"), "\u00E9");
  EXPECT_EQ(Normalize(R"({"type":"NFD"})", "\u00E9"), "e\u0301");
  EXPECT_EQ(Normalize(R"({"type":"NFKC"})", "\uFB01\u2460"), "fi1");
  EXPECT_EQ(Normalize(R"({"type":"NFKD"})", "\uFB01\u00E9"), "fie\u0301");
  EXPECT_EQ(Normalize(R"({"type":"Lowercase"})", "ÄB\u0130"), "äbi\u0307");
  EXPECT_EQ(Normalize(R"({"type":"Strip","strip_left":true,"strip_right":false})", "\u3000 a "), "a ");
  EXPECT_EQ(Normalize(R"({"type":"Strip","strip_left":false,"strip_right":true})", " a\u00A0"), " a");
  EXPECT_EQ(Normalize(R"({"type":"Strip","strip_left":true,"strip_right":true})", "  "), "");
  EXPECT_EQ(Normalize(R"({"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"}]})", "\uFF21"), "a");
}

TEST(NormalizerTest, NormalFormsAreThoseOfUnicodeNine) {
  EXPECT_EQ(Normalize(R"({"type":"NFKC"})", "\u32FF"), "\u32FF") << "a ligature of Unicode 12.1 stays";
  EXPECT_EQ(Normalize(R"({"type":"NFD"})", "a\u0345\u0898"), "a\u0345\u0898") << "a mark of Unicode 14 is not moved";
}

TEST(NormalizerTest, WhatIsNotSupportedIsNamedWithItsPath) {
  EXPECT_EQ(Normalize(R"({"type":"Bert"})", ""), "normalizer: normalizer type \"Bert\" is not supported");
  EXPECT_EQ(Normalize(R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":7}]})", ""),
            "normalizer.normalizers[1].type: expected a string, found number");
  EXPECT_EQ(Normalize(R"({"type":"Replace","pattern":{"String":""},"content":""})", ""),
            "normalizer.pattern.String: must not be empty");
  EXPECT_EQ(Normalize(R"({"type":"Precompiled","precompiled_charsmap":"?"})", ""),
            "normalizer.precompiled_charsmap: is not base64");
}

TEST(NormalizerTest, ATextCannotGrowWithoutBound) {
  EXPECT_THAT(
      Normalize(R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(600, 'b') + "\"}", "aa"),
      HasSubstr("normalized text has 1200 bytes, the limit for this text is 1000"));
}

TEST(PreTokenizerTest, DelimitersBehaveAsTold) {
  const auto split = [](const std::string& behavior) {
    return Split(R"({"type":"Split","pattern":{"String":"-"},"behavior":")" + behavior + R"(","invert":false})",
                 "the-final--countdown");
  };
  EXPECT_THAT(split("Removed"), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(split("Isolated"), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(split("MergedWithPrevious"), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(split("MergedWithNext"), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(split("Contiguous"), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(split("Sideways"), ElementsAre("pre_tokenizer.behavior: behavior \"Sideways\" is not supported"));
}

TEST(PreTokenizerTest, AnInvertedSplitRemovesWhatDoesNotMatch) {
  EXPECT_THAT(Split(R"({"type":"Split","pattern":{"Regex":"[a-z]+"},"behavior":"Removed","invert":true})", "ab1c"),
              ElementsAre("ab", "c"));
}

TEST(PreTokenizerTest, EachKindCutsItsWay) {
  EXPECT_THAT(Split(R"({"type":"WhitespaceSplit"})", " a\u3000b "), ElementsAre("a", "b"));
  EXPECT_THAT(Split(R"({"type":"Whitespace"})", "ab_c, d!?"), ElementsAre("ab_c", ",", "d", "!?"));
  EXPECT_THAT(Split(R"({"type":"Digits","individual_digits":true})", "a12\u0663"),
              ElementsAre("a", "1", "2", "\u0663"));
  EXPECT_THAT(Split(R"({"type":"Digits","individual_digits":false})", "a12b"), ElementsAre("a", "12", "b"));
  EXPECT_THAT(Split(R"({"type":"Punctuation"})", "a$_\u3002"), ElementsAre("a", "$", "_", "\u3002"));
  EXPECT_THAT(Split(R"({"type":"ByteLevel","add_prefix_space":true})", "a \u00E9"),
              ElementsAre("\u0120a", "\u0120\u00C3\u00A9"));
  EXPECT_THAT(Split(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})", "a b"),
              ElementsAre("a\u0120b"));
}

TEST(PreTokenizerTest, MetaspaceWritesSpacesAndPutsOneInFront) {
  EXPECT_THAT(Split(R"({"type":"Metaspace","replacement":"_"})", "a  b"), ElementsAre("_a", "_", "_b"));
  EXPECT_THAT(Split(R"({"type":"Metaspace","replacement":"_","split":false})", " a b"), ElementsAre("_a_b"));
  EXPECT_THAT(Split(R"({"type":"Metaspace","replacement":"_","prepend_scheme":"never"})", "a b"),
              ElementsAre("a", "_b"));
  EXPECT_THAT(Split(R"({"type":"Metaspace","replacement":"_","add_prefix_space":false})", "a b"),
              ElementsAre("a", "_b"));
  // "first": only where the prompt begins.
  EXPECT_THAT(Split(R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},
                        {"type":"Metaspace","replacement":"_","prepend_scheme":"first"}]})",
                    "a b"),
              ElementsAre("_a", "b"));
}

TEST(PreTokenizerTest, AChainCannotBlowATextUp) {
  const std::string byte_level = R"({"type":"ByteLevel","add_prefix_space":false})";
  EXPECT_THAT(Split(R"({"type":"Sequence","pretokenizers":[)" + byte_level + "," + byte_level + "]}", ""),
              ElementsAre(HasSubstr("pretokenizers[1]: a Sequence holds no Sequence and at most one ByteLevel")));
}

// The pieces of a text; a token is written as #id.
Strings Extract(const std::vector<AddedToken>& tokens, const std::string& text, bool parses_special = true,
                const Normalizer* normalizer = nullptr) {
  const auto added = AddedVocabulary::Create(tokens, normalizer);
  if (!added.ok()) return {std::string(added.status().message())};
  const auto pieces = added->Extract(text, normalizer, parses_special);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  Strings found;
  for (const TextPiece& piece : *pieces) {
    found.push_back(piece.token == kNoToken ? piece.text : "#" + std::to_string(piece.token));
  }
  return found;
}

TEST(AddedVocabularyTest, TheLeftmostAndOfThoseTheLongestMatches) {
  EXPECT_THAT(Extract({{.id = 1, .content = "<a"}, {.id = 2, .content = "<a>"}, {.id = 3, .content = ">b"}}, "x<a>b<a"),
              ElementsAre("x", "#2", "b", "#1"));
}

TEST(AddedVocabularyTest, StrippedSpacesGoWithTheToken) {
  EXPECT_THAT(Extract({{.id = 1, .content = "M", .lstrip = true}}, "a \tM b"), ElementsAre("a", "#1", " b"));
  EXPECT_THAT(Extract({{.id = 1, .content = "M", .rstrip = true}}, "a M\u3000b"), ElementsAre("a ", "#1", "b"));
}

TEST(AddedVocabularyTest, ASingleWordHasNoWordCharacterNextToIt) {
  EXPECT_THAT(Extract({{.id = 1, .content = "an", .single_word = true}}, "an ant, an\u0301 (an)"),
              ElementsAre("#1", " ant, an\u0301 (", "#1", ")"));
}

TEST(AddedVocabularyTest, SpecialTokensAreTextWhenTheyAreNotParsed) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<s>", .special = true}, {.id = 2, .content = "<t>"}};
  EXPECT_THAT(Extract(tokens, "<s><t>", /*parses_special=*/true), ElementsAre("#1", "#2"));
  EXPECT_THAT(Extract(tokens, "<s><t>", /*parses_special=*/false), ElementsAre("<s>", "#2"));
}

TEST(AddedVocabularyTest, NormalizedTokensAreFoundInTheNormalizedText) {
  const json document = json::parse(R"({"type":"Lowercase"})");
  const auto lowercase = Normalizer::Parse(JsonValue(document, ""));
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "Loud", .normalized = true}, {.id = 2, .content = "Is"}};
  EXPECT_THAT(Extract(tokens, "LOUD is Is", true, lowercase->get()), ElementsAre("#1", " is ", "#2"));
}

TEST(AddedVocabularyTest, DuplicatesAndEmptyTokensAreRefused) {
  EXPECT_THAT(Extract({{.id = 1, .content = "a"}, {.id = 1, .content = "b"}}, ""),
              ElementsAre("two added tokens have id 1"));
  EXPECT_THAT(Extract({{.id = 1, .content = "a"}, {.id = 2, .content = "a"}}, ""),
              ElementsAre("added token \"a\" is given twice"));
  EXPECT_THAT(Extract({{.id = 1, .content = ""}}, ""), ElementsAre("added token 1 is empty"));
}

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

// What each token adds, and what the end adds.
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
  EXPECT_THAT(Decode("null", {"a", "b"}), ElementsAre("a", " b", ""));
}

TEST(DecoderTest, ByteLevelKeepsAnIncompleteCharacter) {
  EXPECT_THAT(Decode(R"({"type":"ByteLevel"})", {"\u00C3", "\u00A9\u0120", "\u00C3"}),
              ElementsAre("", "\u00E9 ", "", "\uFFFD"));
}

TEST(DecoderTest, ARunOfByteTokensStandsOrFallsAsAWhole) {
  const std::string fallback = R"({"type":"ByteFallback"})";
  EXPECT_THAT(Decode(fallback, {"<0xC3>", "<0xA9>", "a"}), ElementsAre("", "", "\u00E9a", ""));
  EXPECT_THAT(Decode(fallback, {"<0xC3>", "<0xA9>", "<0xFF>"}), ElementsAre("", "", "", "\uFFFD\uFFFD\uFFFD"));
  EXPECT_THAT(Decode(fallback, {"<0xC>", "<0xGG>"}), ElementsAre("<0xC>", "<0xGG>", ""));
}

TEST(DecoderTest, MetaspaceDropsTheFirstSpaceOnly) {
  EXPECT_THAT(Decode(R"({"type":"Metaspace","replacement":"_"})", {"_a", "_b"}), ElementsAre("a", " b", ""));
  EXPECT_THAT(Decode(R"({"type":"Metaspace","replacement":"_","prepend_scheme":"never"})", {"_a"}),
              ElementsAre(" a", ""));
}

TEST(DecoderTest, StepsBehindFuseSeeOneGrowingText) {
  const std::string fuse = R"({"type":"Sequence","decoders":[{"type":"Fuse"},)";
  EXPECT_THAT(Decode(fuse + R"({"type":"Strip","content":" ","start":1,"stop":1}]})", {" ", " a ", "b", " ", " "}),
              ElementsAre("", " a", " b", "", " ", ""));
  EXPECT_THAT(Decode(fuse + R"({"type":"Replace","pattern":{"String":"ab"},"content":"X"}]})", {"a", "b", "aa", "c"}),
              ElementsAre("", "X", "a", "ac", ""));
  EXPECT_THAT(Decode(fuse + R"({"type":"Replace","pattern":{"Regex":"a+$"},"content":"X"}]})", {"a", "b", "aa"}),
              ElementsAre("", "", "", "abX"));
  EXPECT_THAT(Decode(fuse + R"({"type":"ByteFallback"}]})", {"<0x", "41>"}), ElementsAre("", "", "A"));
  EXPECT_THAT(Decode(fuse + R"({"type":"ByteLevel"}]})", {"\u0120", "a"}), ElementsAre("", "", " a"));
}

TEST(DecoderTest, StripBeforeFuseSeesEachToken) {
  EXPECT_THAT(Decode(R"({"type":"Strip","content":"_","start":1,"stop":2})", {"__a_", "___", "b"}),
              ElementsAre("_a", "", "b", ""));
}

TEST(DecoderTest, ReplacementsCannotBlowATextUp) {
  json steps = json::array();
  for (int i = 0; i < 20; ++i) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  }
  const std::string config = json{{"type", "Sequence"}, {"decoders", steps}}.dump();
  EXPECT_THAT(Decode(config, {}), ElementsAre("decoder: makes a text more than 65536 times longer"));
  EXPECT_THAT(Decode(R"({"type":"CTC"})", {}), ElementsAre("decoder: decoder type \"CTC\" is not supported"));
}

}  // namespace
}  // namespace quire
