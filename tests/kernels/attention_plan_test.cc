// SPDX-License-Identifier: Apache-2.0

#include "kernels/attention_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

// The sequences of a step with their numbers of tokens and their block tables.
struct Step {
  std::vector<int32_t> query_starts = {0};
  std::vector<int32_t> context_lens;
  std::vector<int32_t> table_starts = {0};
  std::vector<uint32_t> block_tables;
  uint32_t next_block = 1000;

  // Adds a sequence whose table has only its own blocks.
  void Add(int num_queries, int context_len, int block_size = 4) {
    std::vector<uint32_t> table;
    while (int(table.size()) * block_size < context_len) table.push_back(next_block++);
    Add(num_queries, context_len, table);
  }
  void Add(int num_queries, int context_len, const std::vector<uint32_t>& table) {
    query_starts.push_back(query_starts.back() + num_queries);
    context_lens.push_back(context_len);
    block_tables.insert(block_tables.end(), table.begin(), table.end());
    table_starts.push_back(int32_t(block_tables.size()));
  }
  int num_sequences() const { return int(context_lens.size()); }
  int SequenceOf(int token) const {
    return int(std::upper_bound(query_starts.begin(), query_starts.end(), token) - query_starts.begin()) - 1;
  }
  int Position(int token) const {
    const int sequence = SequenceOf(token);
    return context_lens[sequence] - (query_starts[sequence + 1] - token);
  }
  uint32_t Block(int sequence, int index) const { return block_tables[table_starts[sequence] + index]; }

  BatchView View() const {
    BatchView view = {};
    view.num_tokens = query_starts.back();
    view.num_sequences = num_sequences();
    view.query_starts = query_starts.data();
    view.context_lens = context_lens.data();
    view.table_starts = table_starts.data();
    view.block_tables = block_tables.data();
    return view;
  }
};

AttentionPlan Plan(const Step& step, const AttentionPlanOptions& options) {
  AttentionPlanner planner;
  return planner.Plan(step.View(), options);
}

AttentionPlanOptions SmallOptions() {
  return {.num_kv_heads = 2,
          .group_size = 3,
          .window = 0,
          .block_size = 4,
          .tile_tokens = 8,
          .split_tokens = 16,
          .item_rows = 12,
          .min_items = 8};
}

// Runs a plan with sets of tokens instead of numbers. It checks that every token of the batch ends with exactly the
// positions that it sees. Each must be attended once and in ascending order, every split from its first visible tile
// on, and each split must be joined to the earlier ones. It also checks that every place has one writer at a time, in
// an earlier phase than its readers.
class PlanChecker {
 public:
  PlanChecker(const Step& step, const AttentionPlanOptions& options, const AttentionPlan& plan)
      : step_(step), options_(options), plan_(plan) {}

  void Check() {
    std::vector<int32_t> tokens = plan_.tokens;
    std::sort(tokens.begin(), tokens.end());
    ASSERT_EQ(int(tokens.size()), step_.query_starts.back());
    for (int i = 0; i < int(tokens.size()); ++i) ASSERT_EQ(tokens[i], i);
    int begin = 0;
    for (const int end : plan_.phase_ends) {
      const std::map<int, Done> before = partials_;
      for (int i = begin; i < end; ++i) RunItem(plan_.items[i], before);
      begin = end;
    }
    ASSERT_EQ(begin, int(plan_.items.size()));
    for (const AttentionMerge& merge : plan_.merges) {
      for (int row = 0; row < merge.num_rows; ++row) {
        Write(merge.first_row + row, Joined(merge.first_place, merge.num_places, row, partials_));
      }
    }
    for (int token = 0; token < step_.query_starts.back(); ++token) {
      EXPECT_TRUE(written_.contains(token)) << "no output for token " << token;
    }
  }

 private:
  // The contents of a state: the token of the batch that it belongs to, and the next position to attend to.
  struct Done {
    int token;
    int begin;
    int end;
  };

  int Slot(const PartialPlace& place, int row) const { return place.first + row * options_.group_size; }

  void RunItem(const AttentionItem& item, const std::map<int, Done>& before) {
    ASSERT_GT(item.num_rows, 0);
    ASSERT_LT(item.begin, item.end);
    ASSERT_EQ(item.begin % options_.tile_tokens, 0);
    EXPECT_TRUE(item.num_rows == 1 || item.num_rows * options_.group_size <= options_.item_rows);
    const int split = item.begin / options_.split_tokens;
    if (item.partial.first >= 0) {
      ASSERT_TRUE(options_.sizes_parts || split == (item.end - 1) / options_.split_tokens);
      ASSERT_EQ(item.partial.head_stride % options_.group_size, 0);
      ASSERT_LE(Slot(item.partial, item.num_rows) + (options_.num_kv_heads - 1) * item.partial.head_stride,
                plan_.num_partials);
    }
    for (int row = 0; row < item.num_rows; ++row) {
      const int token = plan_.tokens[item.first_row + row];
      CheckBlocks(item, step_.SequenceOf(token));
      Done done = {token, item.begin, item.end};
      if (item.resumed.first >= 0) {
        const auto it = before.find(Slot(item.resumed, row));
        ASSERT_TRUE(it != before.end());
        ASSERT_EQ(it->second.token, token);
        ASSERT_EQ(it->second.end, item.begin);
        ASSERT_EQ(it->second.begin / options_.split_tokens, split);
        done.begin = it->second.begin;
      }
      if (item.partial.first >= 0) {
        Done& place = partials_[Slot(item.partial, row)];
        if (before.contains(Slot(item.partial, row))) {
          EXPECT_EQ(item.partial.first, item.resumed.first) << "writes where another's result is";
        } else {
          EXPECT_EQ(place.end, 0) << "two writers in one phase";
        }
        place = done;
        continue;
      }
      if (item.num_places > 0) {
        const Done joined = Joined(item.first_place, item.num_places, row, before);
        ASSERT_EQ(joined.token, token);
        ASSERT_EQ(joined.end, done.begin);
        done.begin = joined.begin;
      }
      Write(item.first_row + row, done);
    }
  }

  // Checks that the rows may read the blocks of the item's sequence.
  void CheckBlocks(const AttentionItem& item, int sequence) const {
    if (sequence == item.sequence) return;
    for (int i = item.begin / options_.block_size; i * options_.block_size < item.end; ++i) {
      ASSERT_EQ(step_.Block(item.sequence, i), step_.Block(sequence, i));
    }
  }

  Done Joined(int first_place, int num_places, int row, const std::map<int, Done>& from) const {
    Done all = {-1, 0, 0};
    for (int i = 0; i < num_places; ++i) {
      const auto it = from.find(Slot(plan_.places[first_place + i], row));
      if (it == from.end()) {
        ADD_FAILURE() << "joins what nobody has computed";
        return all;
      }
      if (i == 0) {
        all = it->second;
        continue;
      }
      EXPECT_EQ(it->second.token, all.token);
      EXPECT_EQ(it->second.begin, all.end) << "splits are joined in ascending order";
      EXPECT_EQ(it->second.begin % options_.split_tokens, 0) << "a split is computed in one go";
      all.end = it->second.end;
    }
    return all;
  }

  void Write(int row, const Done& done) {
    const int token = plan_.tokens[row], position = step_.Position(token);
    EXPECT_EQ(done.token, token);
    EXPECT_TRUE(written_.insert(token).second) << "written twice";
    EXPECT_LE(done.begin, FirstVisible(position, options_.window));
    EXPECT_GT(done.end, position);
  }

  const Step& step_;
  const AttentionPlanOptions& options_;
  const AttentionPlan& plan_;
  std::map<int, Done> partials_;  // Keyed by the slot of KV head 0.
  std::set<int> written_;
};

TEST(AttentionPlanTest, RandomBatchesAreCoveredExactlyOnce) {
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    AttentionPlanOptions options = SmallOptions();
    options.group_size = random.Int(1, 16);
    options.window = i % 3 == 0 ? random.Int(1, 60) : 0;
    options.min_items = random.Int(1, 30);
    options.sizes_parts = i % 2 == 0;
    Step step;
    for (int n = random.Int(1, 6); n > 0; --n) {
      const int context_len = random.Int(1, 150);
      step.Add(random.Int(0, 1) ? 1 : random.Int(1, context_len), context_len);
    }
    const AttentionPlan plan = Plan(step, options);
    PlanChecker(step, options, plan).Check();
  }
}

// Sequences fork from earlier ones after some blocks, like samples and beams.
TEST(AttentionPlanTest, RandomTreesOfSharedPrefixesAreCoveredExactlyOnce) {
  Random random(2);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    AttentionPlanOptions options = SmallOptions();
    options.block_size = 1 << random.Int(0, 5);
    options.group_size = random.Int(1, 8);
    options.item_rows = random.Int(8, 40);
    options.window = i % 5 == 0 ? random.Int(30, 200) : 0;
    options.min_items = random.Int(1, 30);
    if (i % 2 == 0) options.max_partials = random.Int(0, 2000);
    // As on a GPU: a tile is a whole split, so that no item continues a split.
    options.sizes_parts = i % 4 < 2;
    if (options.sizes_parts) options.tile_tokens = options.split_tokens;
    Step step;
    std::vector<std::vector<uint32_t>> tables;
    for (int n = random.Int(2, 20); n > 0; --n) {
      const int context_len = random.Int(1, 150), num_queries = random.Int(1, std::min(context_len, 10));
      const int num_blocks = (context_len + options.block_size - 1) / options.block_size;
      std::vector<uint32_t> table;
      if (!tables.empty() && random.Int(0, 5) > 0) table = tables[random.Int(0, int(tables.size()) - 1)];
      const int most_shared = std::min(int(table.size()), (context_len - num_queries) / options.block_size);
      table.resize(random.Int(random.Int(0, most_shared), most_shared));
      while (int(table.size()) < num_blocks) table.push_back(step.next_block++);
      tables.push_back(table);
      step.Add(num_queries, context_len, table);
    }
    const AttentionPlan plan = Plan(step, options);
    PlanChecker(step, options, plan).Check();
    EXPECT_LE(plan.num_partials, options.max_partials);
  }
}

TEST(AttentionPlanTest, OneLongDecodeIsCutAtItsSplits) {
  Step step;
  step.Add(1, 100);
  const AttentionPlan plan = Plan(step, SmallOptions());
  EXPECT_EQ(plan.items.size(), 7u);  // The splits have 16 tokens.
  EXPECT_EQ(plan.merges.size(), 1u);
  EXPECT_EQ(plan.num_partials, 2 * 7 * 3);
}

TEST(AttentionPlanTest, PartsThatAreSizedAreJustEnough) {
  AttentionPlanOptions options = SmallOptions();  // 8 items are wanted, and there are two KV heads.
  options.sizes_parts = true;
  Step step;
  step.Add(1, 16 * 50);
  AttentionPlan plan = Plan(step, options);
  ASSERT_EQ(plan.items.size(), 4u);  // 13 splits each, and 11 in the last.
  EXPECT_EQ(plan.num_partials, 2 * 4 * 3);
  for (const AttentionItem& item : plan.items) EXPECT_LE(item.end - item.begin, 13 * 16);
  ASSERT_EQ(plan.merges.size(), 1u);
  EXPECT_EQ(plan.merges[0].num_places, 4);

  options.min_items = 2000;  // More than there are splits.
  EXPECT_EQ(Plan(step, options).items.size(), 50u);

  // The partial results of four parts fit, and the partial results of fifty splits would not.
  options.min_items = 8;
  options.max_partials = 2 * 4 * 3;
  EXPECT_EQ(Plan(step, options).items.size(), 4u);
  options.max_partials = 2 * 4 * 3 - 1;
  EXPECT_EQ(Plan(step, options).items.size(), 1u);
}

TEST(AttentionPlanTest, ManyDecodesStayWhole) {
  Step step;
  for (int i = 0; i < 8; ++i) step.Add(1, 100);
  const AttentionPlan plan = Plan(step, SmallOptions());
  EXPECT_EQ(plan.items.size(), 8u);
  EXPECT_EQ(plan.num_partials, 0);
}

TEST(AttentionPlanTest, OneGiantAmongManyIsCut) {
  Step step;
  for (int i = 0; i < 8; ++i) step.Add(1, 16);
  step.Add(1, 16 * 50);
  const AttentionPlan plan = Plan(step, SmallOptions());
  EXPECT_EQ(plan.items.size(), 8u + 50);
  EXPECT_EQ(plan.merges.size(), 1u);
}

TEST(AttentionPlanTest, AWindowLeavesOutTheTilesBeforeIt) {
  AttentionPlanOptions options = SmallOptions();
  options.window = 18;
  EXPECT_EQ(FirstVisible(17, 18), 0);
  EXPECT_EQ(FirstVisible(18, 18), 1);
  Step step;
  step.Add(1, 100);  // Position 99 sees 82 .. 99. Token 82 is in the first tile of split 5, which begins at 80.
  for (const AttentionItem& item : Plan(step, options).items) {
    EXPECT_GE(item.begin, 80);
    EXPECT_LE(item.end, 100);
  }
}

TEST(AttentionPlanTest, ExpensiveItemsComeFirst) {
  Step step;
  for (const int context_len : {10, 90, 40, 64}) step.Add(1, context_len);
  AttentionPlanOptions options = SmallOptions();
  options.min_items = 1;
  const AttentionPlan plan = Plan(step, options);
  EXPECT_TRUE(std::is_sorted(plan.items.begin(), plan.items.end(),
                             [](const auto& a, const auto& b) { return a.end - a.begin > b.end - b.begin; }));
  EXPECT_EQ(plan.items[0].sequence, 1);
}

// Three samples share 5 blocks of 4 tokens. The last of these blocks is in a tile that they do not share completely.
TEST(AttentionPlanTest, ASharedPrefixIsReadOnceUpToItsLastWholeTile) {
  Step step;
  step.Add(1, 22, {1, 2, 3, 4, 5, 10});
  step.Add(1, 30, 4);
  step.Add(1, 23, {1, 2, 3, 4, 5, 11});
  step.Add(1, 24, {1, 2, 3, 4, 5, 12});
  AttentionPlanOptions options = SmallOptions();
  options.min_items = 1;
  const AttentionPlan plan = Plan(step, options);
  ASSERT_EQ(plan.items.size(), 5u);
  ASSERT_EQ(plan.phase_ends.size(), 2u);
  for (const AttentionItem& item : plan.items) {
    if (item.num_rows == 1) continue;
    EXPECT_EQ(item.num_rows, 3);
    EXPECT_EQ(item.begin, 0);
    EXPECT_EQ(item.end, 16);
  }
  for (int i = plan.phase_ends[0]; i < plan.phase_ends[1]; ++i) {
    EXPECT_EQ(plan.items[i].begin, 16);
    EXPECT_EQ(plan.items[i].num_places, 1);
  }
}

TEST(AttentionPlanTest, PromptsAreNotGrouped) {
  Step step;
  for (uint32_t i = 0; i < 2; ++i) step.Add(20, 40, {1, 2, 3, 4, 5, 10 + i, 20 + i, 30 + i, 40 + i, 50 + i});
  for (const AttentionItem& item : Plan(step, SmallOptions()).items) EXPECT_EQ(item.resumed.first, -1);
}

}  // namespace
}  // namespace quire
