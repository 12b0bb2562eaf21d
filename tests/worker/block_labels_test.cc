// SPDX-License-Identifier: Apache-2.0

#include "worker/block_labels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "tests/random.h"
#include "tests/worker/plan_builder.h"

namespace quire {
namespace {

constexpr int kBlockSize = 4;
constexpr uint32_t kNumBlocks = 12;
constexpr uint32_t kHost = kNumBlocks;  // The place of the first block of the host tier.

WorkerLimits Limits() {
  return {.max_sequences = 4,
          .max_tokens_per_step = 64,
          .max_context_tokens = 64,
          .vocab_size = 100,
          .block_size = kBlockSize,
          .num_blocks = kNumBlocks,
          .num_host_blocks = 4};
}

// The label of a place says this: the tokens of the whole prefix, and its root.
struct Prefix {
  std::string root;
  std::vector<TokenId> tokens;

  bool operator==(const Prefix&) const = default;
};

// The place of a full block with this content. Nothing if no label has it.
std::optional<uint32_t> FindContent(const BlockLabels& labels, uint64_t content) {
  for (int place = 0; place < labels.num_places(); ++place) {
    if (labels.label(place).parent != 0 && labels.label(place).content == content) return place;
  }
  return std::nullopt;
}

// Follows the chain of labels. Nothing if the place has no label or the chain does not reach a root.
std::optional<Prefix> PrefixOf(const BlockLabels& labels, uint32_t place) {
  const BlockLabels::Label& label = labels.label(place);
  if (label.parent == 0) return std::nullopt;
  Prefix prefix{labels.RootName(label.root), {}};
  if (label.parent != labels.RootNumber(label.root)) {
    const std::optional<uint32_t> before = FindContent(labels, label.parent);
    const std::optional<Prefix> above = before.has_value() ? PrefixOf(labels, *before) : std::nullopt;
    if (!above.has_value()) return std::nullopt;
    EXPECT_EQ(above->root, prefix.root);
    prefix.tokens = above->tokens;
  }
  const absl::Span<const TokenId> own = labels.TokensOf(place);
  prefix.tokens.insert(prefix.tokens.end(), own.begin(), own.end());
  return prefix;
}

class BlockLabelsTest : public ::testing::Test {
 protected:
  // Stores the tokens `first_token`, `first_token` + 1, ... at positions [first, end).
  void Write(const std::string& root, const std::vector<uint32_t>& table, int first, int end, TokenId first_token) {
    labels_.Write(root, table, first, Tokens(first_token, end - first));
  }
  void ExpectPrefix(uint32_t place, const std::string& root, const std::vector<TokenId>& tokens) {
    EXPECT_EQ(PrefixOf(labels_, place), (Prefix{root, tokens})) << place;
  }
  void ExpectNone(uint32_t place) { EXPECT_EQ(PrefixOf(labels_, place), std::nullopt) << place; }

  BlockLabels labels_{Limits()};
};

TEST_F(BlockLabelsTest, ALabelGrowsWithTheSlicesThatFillTheBlock) {
  Write("a", {3, 7}, 0, 3, 10);
  ExpectPrefix(3, "a", Tokens(10, 3));
  Write("a", {3, 7}, 3, 6, 13);
  ExpectPrefix(3, "a", Tokens(10, 4));
  ExpectPrefix(7, "a", Tokens(10, 6));
  EXPECT_EQ(labels_.num_labels(), 2);
}

TEST_F(BlockLabelsTest, AReusedBlockHasTheLabelOfItsNewContentOnly) {
  Write("a", {3}, 0, 4, 10);
  Write("a", {3}, 0, 2, 50);
  ExpectPrefix(3, "a", Tokens(50, 2));
  // The rest of a block of another prefix does not become a part of this one.
  Write("a", {4, 3}, 0, 4, 20);
  Write("a", {4, 3}, 6, 7, 26);
  ExpectNone(3);
}

TEST_F(BlockLabelsTest, ABlockBehindAReusedBlockLeadsNowhere) {
  Write("a", {3, 7}, 0, 8, 10);
  Write("a", {3}, 0, 4, 50);
  ExpectNone(7);
  // The content comes back, but nothing proves that block 7 was computed from it.
  Write("a", {3}, 0, 4, 10);
  ExpectNone(7);
}

TEST_F(BlockLabelsTest, ABlockIsReachedThroughAnyBlockWithTheContentBeforeIt) {
  Write("a", {3, 7}, 0, 8, 10);
  Write("a", {5}, 0, 4, 10);
  Write("a", {3}, 0, 4, 50);
  ExpectPrefix(7, "a", Tokens(10, 8));
  Write("a", {5, 7, 8}, 8, 10, 18);
  ExpectPrefix(8, "a", Tokens(10, 10));
}

TEST_F(BlockLabelsTest, ACopyHasTheLabelOfItsSourceAndGoesItsOwnWay) {
  Write("a", {3, 7}, 0, 6, 10);
  labels_.Copy(7, 8);
  Write("a", {3, 8}, 6, 8, 60);
  Write("a", {3, 7}, 6, 7, 16);
  ExpectPrefix(7, "a", Tokens(10, 7));
  ExpectPrefix(8, "a", {10, 11, 12, 13, 14, 15, 60, 61});
  labels_.Copy(9, 8);  // Block 9 has an unknown content, and so has block 8 now.
  ExpectNone(8);
}

TEST_F(BlockLabelsTest, ASwappedBlockKeepsItsLabelWhileThePoolIsReused) {
  Write("a", {3, 7}, 0, 6, 10);
  labels_.Copy(3, kHost + 1);
  labels_.Copy(7, kHost + 0);
  Write("a", {3, 7}, 0, 8, 50);
  ExpectPrefix(kHost + 1, "a", Tokens(10, 4));
  ExpectPrefix(kHost + 0, "a", Tokens(10, 6));
  labels_.Copy(kHost + 1, 10);
  labels_.Copy(kHost + 0, 11);
  Write("a", {10, 11}, 6, 8, 16);
  ExpectPrefix(11, "a", Tokens(10, 8));
}

TEST_F(BlockLabelsTest, RootsAreApart) {
  Write("a", {3, 7}, 0, 8, 10);
  Write("b", {4, 8}, 0, 8, 10);
  EXPECT_NE(labels_.label(3).content, labels_.label(4).content);
  // A row of another root reads these blocks. What it stores behind them belongs to no root.
  Write("b", {3, 7, 9}, 8, 10, 18);
  ExpectNone(9);
  ExpectPrefix(7, "a", Tokens(10, 8));
}

TEST_F(BlockLabelsTest, ABlockBehindATableThatIsNoChainHasNoLabel) {
  Write("a", {3, 7}, 0, 8, 10);
  Write("a", {4, 8}, 0, 8, 50);
  Write("a", {4, 7, 9}, 8, 10, 18);
  ExpectNone(9);
}

TEST_F(BlockLabelsTest, ARowWithoutARootTakesTheLabelsFromTheBlocksThatItWrites) {
  Write("a", {3, 7}, 0, 8, 10);
  labels_.WriteUnlabelled(std::vector<uint32_t>{3, 7}, 5);
  ExpectPrefix(3, "a", Tokens(10, 4));
  ExpectNone(7);
  EXPECT_EQ(labels_.num_labels(), 1);
}

TEST_F(BlockLabelsTest, TheSameTokensAgainChangeNothing) {
  Write("a", {3, 7, 8}, 0, 10, 10);
  const uint64_t content = labels_.label(7).content;
  Write("a", {3, 7, 8}, 5, 8, 15);
  EXPECT_EQ(labels_.label(7).content, content);
  ExpectPrefix(8, "a", Tokens(10, 10));
  Write("a", {3, 7}, 5, 7, 70);  // Other tokens cut off what comes after them.
  ExpectPrefix(7, "a", {10, 11, 12, 13, 14, 70, 71});
  ExpectNone(8);
}

// The content of every slot, from first principles: what its K and V were computed from. A slot is known by a number
// that stands for its token, its position, its root and everything in the slots before it in the table of its row.
class SlotModel {
 public:
  explicit SlotModel(size_t num_places) : slots_(num_places, std::vector<size_t>(kBlockSize, 0)) {}

  void Copy(uint32_t source, uint32_t destination) { slots_[destination] = slots_[source]; }
  void Write(const std::string& root, const std::vector<uint32_t>& table, int first,
             const std::vector<TokenId>& tokens) {
    size_t before = 0;
    for (int position = 0; position < first + static_cast<int>(tokens.size()); ++position) {
      size_t& slot = slots_[table[position / kBlockSize]][position % kBlockSize];
      if (position >= first) slot = Computed(root, position, tokens[position - first], before);
      before = absl::HashOf(before, slot);
    }
  }
  // Whether the place really contains the last tokens of the prefix.
  bool Has(uint32_t place, const Prefix& prefix) const {
    const int first = (static_cast<int>(prefix.tokens.size()) - 1) / kBlockSize * kBlockSize;
    size_t before = 0;
    for (int position = 0; position < static_cast<int>(prefix.tokens.size()); ++position) {
      const size_t computed = Computed(prefix.root, position, prefix.tokens[position], before);
      if (position >= first && slots_[place][position - first] != computed) return false;
      before = absl::HashOf(before, computed);
    }
    return true;
  }

 private:
  static size_t Computed(const std::string& root, int position, TokenId token, size_t before) {
    return absl::HashOf(root, position, token, before);
  }

  std::vector<std::vector<size_t>> slots_;  // [places][block_size]
};

// Random rows write, copy and swap without any order. Tables name any blocks, so most of them are nonsense. Whatever
// happens, a label tells the truth.
TEST(BlockLabelsPropertyTest, ALabelNeverClaimsWhatABlockDoesNotContain) {
  int num_labels_seen = 0;
  int longest = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    BlockLabels labels(Limits());
    SlotModel model(labels.num_places());
    std::vector<std::vector<uint32_t>> tables(4);
    std::vector<int> lengths(4, 0);
    for (int round = 0; round < 300; ++round) {
      const int row = random.Below(4);
      const std::string root = random.OneIn(4) ? "b" : "a";
      if (random.OneIn(4)) {
        const uint32_t source = random.Below(labels.num_places());
        const uint32_t destination = random.Below(labels.num_places());
        if (source == destination) continue;
        labels.Copy(source, destination);
        model.Copy(source, destination);
      } else {
        std::vector<uint32_t>& table = tables[row];
        int& length = lengths[row];
        if (length > 20 || random.OneIn(8)) {
          table.clear();
          length = 0;
        }
        if (!table.empty() && random.OneIn(8))
          table[random.Below(static_cast<int>(table.size()))] = random.Below(kNumBlocks);
        const int first = random.OneIn(6) ? random.Below(length + 1) : length;
        const int end = first + 1 + random.Below(6);
        while (static_cast<int>(table.size()) * kBlockSize < end) {
          uint32_t block;
          do {
            block = random.Below(kNumBlocks);
          } while (std::count(table.begin(), table.end(), block) > 0);
          table.push_back(block);
        }
        std::vector<TokenId> tokens;
        for (int i = first; i < end; ++i) tokens.push_back(random.Below(2));
        // The blocks of a slice must be different, as a plan's must.
        std::vector<uint32_t> written(table.begin() + first / kBlockSize, table.end());
        std::sort(written.begin(), written.end());
        const bool writes_twice = std::adjacent_find(written.begin(), written.end()) != written.end();
        const bool reads_written = std::any_of(table.begin(), table.begin() + first / kBlockSize, [&](uint32_t block) {
          return std::binary_search(written.begin(), written.end(), block);
        });
        if (writes_twice || reads_written) {
          table.clear();
          length = 0;
          continue;
        }
        table.resize((end + kBlockSize - 1) / kBlockSize);
        labels.Write(root, table, first, tokens);
        model.Write(root, table, first, tokens);
        length = end;
      }
      for (int place = 0; place < labels.num_places(); ++place) {
        const std::optional<Prefix> prefix = PrefixOf(labels, place);
        if (!prefix.has_value()) continue;
        ++num_labels_seen;
        longest = std::max(longest, static_cast<int>(prefix->tokens.size()));
        ASSERT_TRUE(model.Has(place, *prefix)) << "seed " << seed << ", round " << round << ", place " << place;
      }
    }
  }
  EXPECT_GT(num_labels_seen, 20000);
  EXPECT_GT(longest, 3 * kBlockSize);
}

// Rows that behave as the manager's do: each block is written by one row at a time, and tables hold what the row has
// computed. Then every block has its label.
TEST(BlockLabelsPropertyTest, EveryBlockOfAnOrdinaryRowHasItsLabel) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    BlockLabels labels(Limits());
    std::vector<uint32_t> table;
    std::vector<TokenId> tokens;
    for (int round = 0; round < 200; ++round) {
      if (tokens.size() > 20) {
        table.clear();
        tokens.clear();
      }
      if (!tokens.empty() && random.OneIn(4)) {
        // The last block moves, by copy-on-write or through the host tier.
        uint32_t block;
        do {
          block = random.Below(kNumBlocks);
        } while (std::count(table.begin(), table.end(), block) > 0);
        if (random.OneIn(2)) {
          labels.Copy(table.back(), kHost);
          labels.Copy(kHost, block);
        } else {
          labels.Copy(table.back(), block);
        }
        table.back() = block;
      }
      const int first = static_cast<int>(tokens.size());
      const int count = 1 + random.Below(6);
      for (int i = 0; i < count; ++i) tokens.push_back(random.Below(90));
      while (table.size() * kBlockSize < tokens.size()) {
        uint32_t block;
        do {
          block = random.Below(kNumBlocks);
        } while (std::count(table.begin(), table.end(), block) > 0);
        table.push_back(block);
      }
      labels.Write("a", table, first, absl::MakeConstSpan(tokens).subspan(first));
      for (size_t i = 0; i < table.size(); ++i) {
        const size_t end = std::min(tokens.size(), (i + 1) * kBlockSize);
        ASSERT_EQ(PrefixOf(labels, table[i]), (Prefix{"a", {tokens.begin(), tokens.begin() + end}}))
            << "seed " << seed << ", round " << round << ", block " << table[i];
      }
    }
  }
}

}  // namespace
}  // namespace quire
