// SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/normalizer.h"
#include "kv_manager/tokenizer/pre_tokenizer.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Strings = std::vector<std::string>;

TextPiece PieceOf(const std::string& text) {
  return {.text = text,
          .num_origin_bytes = text.empty() ? 0 : Utf8Length(text.front()),
          .starts_at_origin = true,
          .max_bytes = 1000};
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
  EXPECT_EQ(split("Removed"), Strings({"the", "final", "countdown"}));
  EXPECT_EQ(split("Isolated"), Strings({"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split("MergedWithPrevious"), Strings({"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split("MergedWithNext"), Strings({"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split("Contiguous"), Strings({"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split("Sideways"), Strings({"pre_tokenizer.behavior: behavior \"Sideways\" is not supported"}));
}

TEST(PreTokenizerTest, AnInvertedSplitRemovesWhatDoesNotMatch) {
  EXPECT_EQ(Split(R"({"type":"Split","pattern":{"Regex":"[a-z]+"},"behavior":"Removed","invert":true})", "ab1c"),
            Strings({"ab", "c"}));
}

TEST(PreTokenizerTest, EachKindCutsItsWay) {
  EXPECT_EQ(Split(R"({"type":"WhitespaceSplit"})", " a\u3000b "), Strings({"a", "b"}));
  EXPECT_EQ(Split(R"({"type":"Whitespace"})", "ab_c, d!?"), Strings({"ab_c", ",", "d", "!?"}));
  EXPECT_EQ(Split(R"({"type":"Digits","individual_digits":true})", "a12\u0663"), Strings({"a", "1", "2", "\u0663"}));
  EXPECT_EQ(Split(R"({"type":"Digits","individual_digits":false})", "a12b"), Strings({"a", "12", "b"}));
  EXPECT_EQ(Split(R"({"type":"Punctuation"})", "a$_\u3002"), Strings({"a", "$", "_", "\u3002"}));
  EXPECT_EQ(Split(R"({"type":"ByteLevel","add_prefix_space":true})", "a \u00E9"),
            Strings({"\u0120a", "\u0120\u00C3\u00A9"}));
  EXPECT_EQ(Split(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})", "a b"), Strings({"a\u0120b"}));
}

TEST(PreTokenizerTest, MetaspaceWritesSpacesAndPutsOneInFront) {
  EXPECT_EQ(Split(R"({"type":"Metaspace","replacement":"_"})", "a  b"), Strings({"_a", "_", "_b"}));
  EXPECT_EQ(Split(R"({"type":"Metaspace","replacement":"_","split":false})", " a b"), Strings({"_a_b"}));
  EXPECT_EQ(Split(R"({"type":"Metaspace","replacement":"_","prepend_scheme":"never"})", "a b"), Strings({"a", "_b"}));
  EXPECT_EQ(Split(R"({"type":"Metaspace","replacement":"_","add_prefix_space":false})", "a b"), Strings({"a", "_b"}));
  // "first": only where the prompt begins.
  EXPECT_EQ(Split(R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},
                        {"type":"Metaspace","replacement":"_","prepend_scheme":"first"}]})",
                  "a b"),
            Strings({"_a", "b"}));
}

TEST(PreTokenizerTest, AChainCannotBlowATextUp) {
  const std::string byte_level = R"({"type":"ByteLevel","add_prefix_space":false})";
  EXPECT_THAT(Split(R"({"type":"Sequence","pretokenizers":[)" + byte_level + "," + byte_level + "]}", ""),
              ElementsAre(HasSubstr("pretokenizers[1]: a Sequence holds no Sequence and at most one ByteLevel")));
}

}  // namespace
}  // namespace quire
