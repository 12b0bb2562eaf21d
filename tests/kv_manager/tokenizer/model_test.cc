// SPDX-License-Identifier: Apache-2.0

// Tests the parts that encode a word: Bpe, Unigram, SentencePieceBpe, and the tries below them.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/bpe.h"
#include "kv_manager/tokenizer/charsmap.h"
#include "kv_manager/tokenizer/prefix_trie.h"
#include "kv_manager/tokenizer/unigram.h"
#include "kv_manager/tokenizer/unigram_lattice.h"
#include "tests/kv_manager/tokenizer/golden_files.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// The id of a piece is its index in the list.
Vocabulary VocabularyOf(const std::vector<std::string>& pieces) {
  std::vector<std::pair<std::string, TokenId>> numbered;
  for (const std::string& piece : pieces) numbered.emplace_back(piece, static_cast<TokenId>(numbered.size()));
  Vocabulary vocabulary;
  EXPECT_TRUE(vocabulary.Assign(numbered).ok());
  return vocabulary;
}

std::vector<TokenId> Encode(const TokenModel& model, std::string_view word) {
  std::vector<TokenId> tokens;
  const absl::Status status = model.Encode(word, &tokens);
  EXPECT_TRUE(status.ok()) << status;
  return tokens;
}

std::unique_ptr<Bpe> BpeOf(const std::vector<std::string>& pieces, const std::vector<Bpe::Merge>& merges,
                           Bpe::Options options = {}) {
  auto bpe = Bpe::Create(VocabularyOf(pieces), merges, options);
  EXPECT_TRUE(bpe.ok()) << bpe.status();
  return *std::move(bpe);
}

TEST(BpeTest, TheLowestRankMergesFirstAndTheLeftmostOfEquals) {
  const auto bpe = BpeOf({"a", "b", "c", "bc", "ab", "aa"}, {{"b", "c"}, {"a", "b"}, {"a", "a"}});
  EXPECT_THAT(Encode(*bpe, "abc"), ElementsAre(0, 3));
  EXPECT_THAT(Encode(*bpe, "aaa"), ElementsAre(5, 0));
  EXPECT_THAT(Encode(*bpe, ""), IsEmpty());
}

TEST(BpeTest, IgnoreMergesTakesAWholeWord) {
  EXPECT_THAT(Encode(*BpeOf({"a", "b", "ab"}, {}), "ab"), ElementsAre(0, 1));
  Bpe::Options options;
  options.ignore_merges = true;
  EXPECT_THAT(Encode(*BpeOf({"a", "b", "ab"}, {}, options), "ab"), ElementsAre(2));
}

TEST(BpeTest, UnknownCharactersAreDroppedUnknownFusedOrBytes) {
  Bpe::Options options;
  EXPECT_THAT(Encode(*BpeOf({"a", "<unk>"}, {}, options), "axya"), ElementsAre(0, 0));
  options.unk_token = "<unk>";
  EXPECT_THAT(Encode(*BpeOf({"a", "<unk>"}, {}, options), "axya"), ElementsAre(0, 1, 1, 0));
  options.fuse_unk = true;
  EXPECT_THAT(Encode(*BpeOf({"a", "<unk>"}, {}, options), "axya"), ElementsAre(0, 1, 0));
  options.byte_fallback = true;
  EXPECT_THAT(Encode(*BpeOf({"a", "<unk>", "<0xC3>", "<0xA9>"}, {}, options), "a\xC3\xA9x"), ElementsAre(0, 2, 3, 1));
}

TEST(BpeTest, AMissingUnknownTokenIsAnErrorOnlyWhenItIsNeeded) {
  Bpe::Options options;
  options.unk_token = "<unk>";
  const auto bpe = BpeOf({"a"}, {}, options);
  EXPECT_THAT(Encode(*bpe, "a"), ElementsAre(0));
  std::vector<TokenId> tokens;
  EXPECT_THAT(bpe->Encode("b", &tokens).message(), HasSubstr("\"b\" has no token and neither has unk_token \"<unk>\""));
}

TEST(BpeTest, AMergeMustBeInTheVocabulary) {
  EXPECT_THAT(Bpe::Create(VocabularyOf({"a", "b"}), {{"a", "b"}}, {}).status().message(),
              HasSubstr("merge 0: \"ab\" is not in the vocabulary"));
}

TEST(UnigramTest, TheBestSumOfScoresWins) {
  auto unigram = Unigram::Create(VocabularyOf({"<unk>", "a", "b", "ab", "abb"}), {0, -1, -1, -1.5, -3}, {.unk = 0});
  ASSERT_TRUE(unigram.ok()) << unigram.status();
  EXPECT_THAT(Encode(**unigram, "abb"), ElementsAre(3, 2));
  EXPECT_THAT(Encode(**unigram, "axyab"), ElementsAre(1, 0, 3));
}

// The text of each segment.
std::vector<std::string> Segments(const UnigramLattice& lattice, std::string_view text) {
  std::vector<std::string> segments;
  for (const UnigramLattice::Segment& segment : lattice.FindBest(text)) {
    segments.emplace_back(text.substr(segment.begin, segment.end - segment.begin));
  }
  return segments;
}

// SentencePiece 0.2.3 and tokenizers 0.23.3 give these segments.
TEST(UnigramLatticeTest, OfEqualSumsTheFirstOneFoundWins) {
  const std::vector<UnigramLattice::Piece> pieces = {
      {"a", 1, -7.5f}, {"b", 2, -8.0f}, {"=", 3, -8.652495384216309f}, {"===", 4, -13.115300178527832f}};
  for (const auto arithmetic : {UnigramLattice::Arithmetic::kSingle, UnigramLattice::Arithmetic::kDouble}) {
    EXPECT_THAT(Segments(UnigramLattice(pieces, 0, -30, arithmetic), "a====b"), ElementsAre("a", "=", "===", "b"));
  }
}

// SentencePiece 0.2.3 gives this. Without smaller sums there would be 16 single characters.
TEST(UnigramLatticeTest, SumsInSinglePrecisionAreMadeSmaller) {
  const std::vector<UnigramLattice::Piece> pieces = {{"a", 1, -3864.3f}, {"aa", 2, -7728.6f}, {"aaa", 3, -11593.0f}};
  const UnigramLattice lattice(pieces, 0, -12000, UnigramLattice::Arithmetic::kSingle);
  const std::vector<std::string> segments = Segments(lattice, std::string(120, 'a'));
  EXPECT_EQ(std::ranges::count(segments, "a"), 40);
  EXPECT_EQ(std::ranges::count(segments, "aa"), 40);
}

TEST(UnigramTest, BadScoresAndIdsAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Unigram::Create(VocabularyOf({"a"}), {nan}, {}).status().message(), HasSubstr("token 0 has score nan"));
  EXPECT_THAT(Unigram::Create(VocabularyOf({"a"}), {0}, {.unk = 1}).status().message(), HasSubstr("unk_id is 1"));
}

TEST(PrefixTrieTest, FindsAllPrefixesShortestFirst) {
  const PrefixTrie trie({{"a", 0}, {"abc", 1}, {"b", 2}, {"", 3}});
  std::vector<std::pair<size_t, TokenId>> found;
  trie.ForEachPrefix("abcd", [&](size_t num_bytes, TokenId id) { found.emplace_back(num_bytes, id); });
  EXPECT_THAT(found, ElementsAre(Pair(1, 0), Pair(3, 1)));
  EXPECT_THAT(trie.FindLongest("abx"), Pair(1, 0));
  EXPECT_THAT(trie.FindLongest("x"), Pair(0, -1));
  EXPECT_TRUE(PrefixTrie().empty());
}

TEST(CharsmapTest, ABrokenBlobIsRefusedOrMatchesNothing) {
  EXPECT_THAT(Charsmap::Parse("abc").status().message(), HasSubstr("3 bytes, it needs at least 4"));
  EXPECT_THAT(Charsmap::Parse(std::string("\xFF\xFF\xFF\xFF", 4)).status().message(), HasSubstr("it has 0"));
  EXPECT_THAT(Charsmap::Parse(std::string("\x00\x00\x00\x00", 4)).status().message(), HasSubstr("trie has 0 bytes"));
  // One unit whose offset points far outside.
  const auto charsmap = Charsmap::Parse(std::string("\x04\x00\x00\x00\xFF\xFF\xFF\x7F", 8));
  ASSERT_TRUE(charsmap.ok()) << charsmap.status();
  EXPECT_FALSE(charsmap->FindLongest("a").has_value());
}

// Quadratic merging would not end within the time limit of the test.
TEST(ModelTest, AMillionEqualCharactersAreNoProblem) {
  for (const char* name : {"llama3", "qwen2", "mixed", "sp_bpe", "sp_bpe_prepend", "sp_bpe_metaspace", "sp_symbols",
                           "sp_unigram", "sp_unigram_json"}) {
    const auto tokenizer = LoadGolden(name);
    for (const std::string unit : {"a", " ", "\xE2\x96\x81", ".", "\n", "\xCC\x81", "<s>", "ab1 "}) {
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      const auto tokens = tokenizer->Encode(text, {});
      EXPECT_TRUE(tokens.ok()) << name << " on \"" << unit << "\": " << tokens.status();
    }
  }
}

}  // namespace
}  // namespace quire
