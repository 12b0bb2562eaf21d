// SPDX-License-Identifier: Apache-2.0

// The text of users never becomes a control token, and is otherwise encoded as any text.

#include "kv_manager/tokenizer/user_text.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/added_vocabulary.h"
#include "kv_manager/tokenizer/normalizer.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "tests/kv_manager/tokenizer/golden_files.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ranges = std::vector<ByteRange>;
using Strings = std::vector<std::string>;

// A text with its user ranges: the parts alternate between the template and the user.
struct MarkedText {
  explicit MarkedText(const Strings& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i % 2 == 1 && !parts[i].empty()) user.push_back({text.size(), text.size() + parts[i].size()});
      text += parts[i];
    }
  }
  std::string text;
  Ranges user;
};

std::vector<TokenId> Encode(const Tokenizer& tokenizer, const MarkedText& marked, bool parses_special = true) {
  const auto tokens = tokenizer.Encode(
      marked.text, {.add_special_tokens = false, .parse_special_tokens = parses_special, .user_ranges = marked.user});
  EXPECT_TRUE(tokens.ok()) << marked.text << ": " << tokens.status();
  return tokens.ok() ? *tokens : std::vector<TokenId>{-1};
}

// The pieces of the special tokens in an encoded text, without that for unknown characters.
Strings SpecialPieces(const Tokenizer& tokenizer, const MarkedText& marked) {
  Strings special;
  for (const TokenId token : Encode(tokenizer, marked)) {
    const std::string piece(tokenizer.TokenPiece(token).value());
    if (tokenizer.IsSpecial(token) && piece != "<unk>" && piece != "[UNK]") special.push_back(piece);
  }
  return special;
}

class UserTextTest : public testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer_ = LoadGolden(GetParam());
};

TEST_P(UserTextTest, NoSpecialTokenComesOutOfTheTextOfAUser) {
  int num_special = 0;
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer_->vocab_size()); ++id) {
    if (!tokenizer_->IsSpecial(id)) continue;
    ++num_special;
    const std::string piece(tokenizer_->TokenPiece(id).value());
    EXPECT_THAT(SpecialPieces(*tokenizer_, MarkedText({"", piece})), IsEmpty()) << piece;
    EXPECT_THAT(SpecialPieces(*tokenizer_, MarkedText({"Say ", "hi" + piece + piece + " you", "."})), IsEmpty())
        << piece;
    for (size_t split = 1; split < piece.size(); ++split) {
      EXPECT_THAT(SpecialPieces(*tokenizer_, MarkedText({"a" + piece.substr(0, split), piece.substr(split) + "b"})),
                  IsEmpty())
          << piece;
      EXPECT_THAT(SpecialPieces(*tokenizer_, MarkedText({"a", "b" + piece.substr(0, split), piece.substr(split)})),
                  IsEmpty())
          << piece;
    }
    if (piece == "<unk>" || piece == "[UNK]") continue;
    EXPECT_THAT(SpecialPieces(*tokenizer_, MarkedText({piece + "user: ", piece + "hello" + piece, " end" + piece})),
                ElementsAre(piece, piece));
  }
  EXPECT_GE(num_special, 2);
}

TEST_P(UserTextTest, OtherwiseTheTextIsEncodedAsAWhole) {
  int num_texts = 0;
  for (const auto& json : nlohmann::json::parse(ReadRepositoryFile("tests/golden/tokenizer/strings.json"))) {
    const std::string text = json.get<std::string>();
    size_t middle = text.size() / 2;
    while (middle < text.size() && (static_cast<unsigned char>(text[middle]) & 0xC0) == 0x80) ++middle;
    if (!SpecialPieces(*tokenizer_, MarkedText({text})).empty()) continue;
    // Added and user-defined tokens that are not special.
    constexpr std::string_view kSymbols[] = {"tool_call>", "<u",   "</user>", "the", "[word]", "[MA",
                                             "[UNK]",      "LOUD", "loud",    "a b", "Stra",   "stra"};
    const auto contains = [&](std::string_view symbol) { return text.find(symbol) != std::string::npos; };
    if (std::any_of(std::begin(kSymbols), std::end(kSymbols), contains)) continue;
    ++num_texts;
    const MarkedText marked({"", text});
    EXPECT_EQ(Encode(*tokenizer_, marked), Encode(*tokenizer_, MarkedText({text}))) << json;
    EXPECT_EQ(Encode(*tokenizer_, MarkedText({text.substr(0, middle), text.substr(middle)})),
              Encode(*tokenizer_, MarkedText({text})))
        << json;
  }
  EXPECT_GT(num_texts, 100);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, UserTextTest,
                         testing::Values("llama3", "qwen2", "mixed", "sp_bpe", "sp_bpe_prepend", "sp_bpe_metaspace",
                                         "sp_symbols", "sp_unigram", "sp_unigram_json"),
                         [](const auto& info) { return std::string(info.param); });

TEST(UserTextAddedTokensTest, TokensThatAreNotSpecialAreTextToo) {
  const auto tokenizer = LoadGolden("qwen2");
  const TokenId call = tokenizer->TokenToId("<tool_call>").value();
  EXPECT_THAT(Encode(*tokenizer, MarkedText({"<tool_call>"})), ElementsAre(call));
  EXPECT_THAT(Encode(*tokenizer, MarkedText({"", "<tool_call>"})), testing::Not(testing::Contains(call)));
}

TEST(UserTextAddedTokensTest, UserDefinedPiecesOfSentencePieceAreTextToo) {
  const auto tokenizer = LoadGolden("sp_symbols");
  int num_symbols = 0;
  for (const char* symbol : {"<user>", "</user>", "<u"}) {
    const auto id = tokenizer->TokenToId(symbol);
    if (!id.has_value() || tokenizer->IsSpecial(*id)) continue;
    ++num_symbols;
    EXPECT_THAT(Encode(*tokenizer, MarkedText({symbol})), testing::Contains(*id)) << symbol;
    EXPECT_THAT(Encode(*tokenizer, MarkedText({"", symbol})), testing::Not(testing::Contains(*id))) << symbol;
    EXPECT_THAT(Encode(*tokenizer, MarkedText({symbol, "x", symbol})), testing::Contains(*id).Times(2)) << symbol;
  }
  EXPECT_EQ(num_symbols, 3);
}

// A message of SentencePieces with one piece of the given type.
std::string Piece(const std::string& text, int type) {
  const std::string piece =
      std::string("\x0A") + static_cast<char>(text.size()) + text + "\x18" + static_cast<char>(type);
  return std::string("\x0A") + static_cast<char>(piece.size()) + piece;
}

// SentencePiece itself finds control pieces in the text when they are one character, or are text pieces as well.
TEST(UserTextAddedTokensTest, ControlPiecesThatTheModelFindsInTextAreTextToo) {
  constexpr int kNormal = 1, kUnknown = 2, kControl = 3;
  const std::string is_bpe = "\x12\x02\x18\x02";
  TokenizerFiles files;
  files.tokenizer_model = is_bpe + Piece("<unk>", kUnknown) + Piece("#", kControl) + Piece("a", kNormal) +
                          Piece("b", kNormal) + Piece("ab", kControl) + Piece("ab", kNormal);
  const auto tokenizer = Tokenizer::Load(files);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(SpecialPieces(**tokenizer, MarkedText({"#", "a", "ab"})), ElementsAre("#", "ab"));
  EXPECT_THAT(SpecialPieces(**tokenizer, MarkedText({"", "#ab"})), IsEmpty());
}

// The pieces of a text. A token is written as #id.
Strings Extract(const std::vector<AddedToken>& tokens, const MarkedText& marked, const char* normalizer_json = "") {
  const nlohmann::json document = nlohmann::json::parse(normalizer_json, nullptr, /*allow_exceptions=*/false);
  std::unique_ptr<Normalizer> normalizer;
  if (!document.is_discarded()) normalizer = Normalizer::Parse(JsonValue(document, "")).value();
  const auto added = AddedVocabulary::Create(tokens, normalizer.get()).value();
  const auto pieces = added.Extract(marked.text, normalizer.get(), /*parses_special=*/true, marked.user);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  Strings found;
  for (const TextPiece& piece : *pieces) {
    found.push_back(piece.token == kNoToken ? piece.text : "#" + std::to_string(piece.token));
  }
  return found;
}

TEST(UserTextAddedTokensTest, AUserCannotHideATokenOfTheTemplate) {
  const std::vector<AddedToken> tokens = {
      {.id = 1, .content = "<e>"}, {.id = 2, .content = "x<e>"}, {.id = 3, .content = "<e>y"}};
  EXPECT_EQ(Extract(tokens, MarkedText({"a", "x", "<e>", "y"})), Strings({"ax", "#1", "y"}));
  EXPECT_EQ(Extract(tokens, MarkedText({"a", "", "x<e>"})), Strings({"a", "#2"}));
}

TEST(UserTextAddedTokensTest, TokensOfOnlySpaceAreFoundEverywhere) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "    "}, {.id = 2, .content = "  ", .special = true}};
  EXPECT_EQ(Extract(tokens, MarkedText({"", "a    b  c"})), Strings({"a", "#1", "b  c"}));
}

TEST(UserTextAddedTokensTest, NormalizedTokensAreFoundOutsideOfTheTextOfAUser) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<End>", .normalized = true}};
  constexpr char kLowercase[] = R"({"type":"Lowercase"})";
  EXPECT_EQ(Extract(tokens, MarkedText({"A<END>", "B<END>", "<end>"}), kLowercase),
            Strings({"a", "#1", "b<end>", "#1"}));
  EXPECT_EQ(Extract(tokens, MarkedText({"A<EN", "D>B"}), kLowercase), Strings({"a<end>b"}));
  constexpr char kPrepend[] = R"({"type":"Sequence","normalizers":[{"type":"Lowercase"},
      {"type":"Prepend","prepend":"_"},{"type":"Replace","pattern":{"String":" "},"content":"_"}]})";
  const std::vector<AddedToken> plain = {{.id = 1, .content = "end>", .normalized = true}};
  EXPECT_EQ(Extract(plain, MarkedText({"A_END>", " B_end>", " _END>"}), kPrepend),
            Strings({"_a", "#1", "_b_end>_", "#1"}));
}

TEST(UserTextAddedTokensTest, WhereTheBordersAreLostNoNormalizedTokenIsFound) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<end>", .normalized = true}};
  constexpr char kCompose[] = R"({"type":"NFC"})";
  EXPECT_EQ(Extract(tokens, MarkedText({"<end>e", "\u0301", "<end>"}), kCompose), Strings({"<end>\u00E9<end>"}));
  EXPECT_EQ(Extract(tokens, MarkedText({"<end>e", "x\u0301", "<end>"}), kCompose), Strings({"#1", "ex\u0301", "#1"}));
}

TEST(UserRangesTest, RangesAreClippedAndOverlap) {
  const Ranges ranges = {{2, 4}, {6, 9}};
  EXPECT_EQ(Clip(ranges, 3, 7), Ranges({{0, 1}, {3, 4}}));
  EXPECT_EQ(Clip(ranges, 4, 6), Ranges());
  EXPECT_TRUE(Overlaps(ranges, 0, 3));
  EXPECT_TRUE(Overlaps(ranges, 8, 20));
  EXPECT_FALSE(Overlaps(ranges, 4, 6));
  EXPECT_FALSE(Overlaps(ranges, 0, 2));
  EXPECT_FALSE(Overlaps(ranges, 9, 10));
}

}  // namespace
}  // namespace quire
