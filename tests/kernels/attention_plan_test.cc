#include "kernels/attention_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

struct Lengths {
  std::vector<int32_t> query_starts = {0};
  std::vector<int32_t> context_lens;

  void Add(int num_queries, int context_len) {
    query_starts.push_back(query_starts.back() + num_queries);
    context_lens.push_back(context_len);
  }
  int num_sequences() const { return int(context_lens.size()); }
  int Position(int sequence, int token) const { return context_lens[sequence] - (query_starts[sequence + 1] - token); }
};

AttentionPlan Plan(const Lengths& lengths, const AttentionPlanOptions& options) {
  AttentionPlan plan;
  PlanAttention(lengths.query_starts.data(), lengths.context_lens.data(), lengths.num_sequences(), options, &plan);
  return plan;
}

AttentionPlanOptions SmallOptions() {
  return {.num_kv_heads = 2, .group_size = 3, .window = 0, .split_tokens = 16, .item_rows = 12, .min_items = 8};
}

// Fails unless every (token, KV head) is computed over exactly the splits that it sees, once, and every partial result
// has a place of its own and one reader.
void CheckPlan(const Lengths& lengths, const AttentionPlanOptions& options, const AttentionPlan& plan) {
  std::set<std::tuple<int, int, int>> work;           // (token, kv head, split)
  std::map<int, std::tuple<int, int, int>> partials;  // slot -> (token, kv head, split)
  std::set<std::pair<int, int>> written;              // (token, kv head) with an output
  std::map<std::pair<int, int>, int> sequence_of;     // (token, kv head) -> sequence
  for (const AttentionItem& item : plan.items) {
    ASSERT_GT(item.num_tokens, 0);
    ASSERT_GT(item.num_splits, 0);
    EXPECT_TRUE(item.num_tokens == 1 || item.num_tokens * options.group_size <= options.item_rows);
    EXPECT_TRUE(item.first_partial < 0 || item.num_splits == 1);
    for (int i = 0; i < item.num_tokens; ++i) {
      const int token = item.first_token + i;
      EXPECT_GE(token, lengths.query_starts[item.sequence]);
      EXPECT_LT(token, lengths.query_starts[item.sequence + 1]);
      sequence_of[{token, item.kv_head}] = item.sequence;
      for (int s = item.first_split; s < item.first_split + item.num_splits; ++s) {
        EXPECT_TRUE(work.emplace(token, item.kv_head, s).second) << "done twice";
        if (item.first_partial < 0) continue;
        for (int g = 0; g < options.group_size; ++g) {
          const int slot = item.first_partial + i * options.group_size + g;
          EXPECT_LT(slot, plan.num_partials);
          EXPECT_TRUE(partials.emplace(slot, std::tuple(token, item.kv_head, s)).second) << "slot " << slot;
        }
      }
      if (item.first_partial < 0) {
        EXPECT_TRUE(written.emplace(token, item.kv_head).second);
      }
    }
  }
  for (const AttentionMerge& merge : plan.merges) {
    for (int i = 0; i < merge.num_tokens; ++i) {
      const int token = merge.first_token + i;
      EXPECT_TRUE(written.emplace(token, merge.kv_head).second);
      int last_split = -1;
      for (int s = 0; s < merge.num_splits; ++s) {
        for (int g = 0; g < options.group_size; ++g) {
          const int slot = merge.first_partial + (s * merge.num_tokens + i) * options.group_size + g;
          ASSERT_TRUE(partials.contains(slot));
          const auto [slot_token, slot_head, slot_split] = partials[slot];
          EXPECT_EQ(slot_token, token);
          EXPECT_EQ(slot_head, merge.kv_head);
          if (g == 0) {
            EXPECT_GT(slot_split, last_split) << "splits are joined in ascending order";
          }
          last_split = slot_split;
          partials.erase(slot);
        }
      }
    }
  }
  EXPECT_TRUE(partials.empty()) << "a partial result that nobody joins";
  for (int sequence = 0; sequence < lengths.num_sequences(); ++sequence) {
    for (int token = lengths.query_starts[sequence]; token < lengths.query_starts[sequence + 1]; ++token) {
      const int position = lengths.Position(sequence, token);
      for (int head = 0; head < options.num_kv_heads; ++head) {
        EXPECT_TRUE(written.contains({token, head}));
        EXPECT_EQ((sequence_of[{token, head}]), sequence);
        for (int t = FirstVisible(position, options.window); t <= position; ++t) {
          EXPECT_TRUE(work.contains({token, head, t / options.split_tokens}))
              << "position " << position << " sees " << t;
        }
      }
    }
  }
}

TEST(AttentionPlanTest, RandomBatchesAreCoveredExactlyOnce) {
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    AttentionPlanOptions options = SmallOptions();
    options.group_size = random.Int(1, 16);
    options.window = i % 3 == 0 ? random.Int(1, 60) : 0;
    options.min_items = random.Int(1, 30);
    Lengths lengths;
    for (int n = random.Int(1, 6); n > 0; --n) {
      const int context_len = random.Int(1, 150);
      lengths.Add(random.Int(0, 1) ? 1 : random.Int(1, context_len), context_len);
    }
    CheckPlan(lengths, options, Plan(lengths, options));
  }
}

TEST(AttentionPlanTest, OneLongDecodeIsCutAtItsSplits) {
  Lengths lengths;
  lengths.Add(1, 100);
  const AttentionPlan plan = Plan(lengths, SmallOptions());
  EXPECT_EQ(plan.items.size(), 2u * 7);  // 7 splits of 16 tokens for each of 2 KV heads.
  EXPECT_EQ(plan.merges.size(), 2u);
  EXPECT_EQ(plan.num_partials, 2 * 7 * 3);
}

TEST(AttentionPlanTest, ManyDecodesStayWhole) {
  Lengths lengths;
  for (int i = 0; i < 8; ++i) lengths.Add(1, 100);
  const AttentionPlan plan = Plan(lengths, SmallOptions());
  EXPECT_EQ(plan.items.size(), 8u * 2);
  EXPECT_EQ(plan.num_partials, 0);
}

TEST(AttentionPlanTest, OneGiantAmongManyIsCut) {
  Lengths lengths;
  for (int i = 0; i < 8; ++i) lengths.Add(1, 16);
  lengths.Add(1, 16 * 50);
  const AttentionPlan plan = Plan(lengths, SmallOptions());
  EXPECT_EQ(plan.items.size(), 8u * 2 + 50 * 2);
  EXPECT_EQ(plan.merges.size(), 2u);
}

TEST(AttentionPlanTest, AWindowLeavesOutTheSplitsBeforeIt) {
  AttentionPlanOptions options = SmallOptions();
  options.window = 20;
  EXPECT_EQ(FirstVisible(19, 20), 0);
  EXPECT_EQ(FirstVisible(20, 20), 1);
  Lengths lengths;
  lengths.Add(1, 100);  // Position 99 sees 80 .. 99: splits 5 and 6.
  for (const AttentionItem& item : Plan(lengths, options).items) {
    EXPECT_GE(item.first_split, 5);
    EXPECT_LE(item.first_split + item.num_splits, 7);
  }
}

TEST(AttentionPlanTest, ExpensiveItemsComeFirst) {
  Lengths lengths;
  for (const int context_len : {10, 90, 40, 64}) lengths.Add(1, context_len);
  AttentionPlanOptions options = SmallOptions();
  options.min_items = 1;
  const AttentionPlan plan = Plan(lengths, options);
  EXPECT_TRUE(std::is_sorted(plan.items.begin(), plan.items.end(),
                             [](const auto& a, const auto& b) { return a.num_splits > b.num_splits; }));
  EXPECT_EQ(plan.items[0].sequence, 1);
}

}  // namespace
}  // namespace quire
