// SPDX-License-Identifier: Apache-2.0

// The forward functions over a caller's cache, compared with float64.

#include "kernels/paged_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/paged_attention_cases.h"

namespace quire {
namespace {

using testing::HasSubstr;

std::vector<char> Forward(const PagedCase& paged) {
  std::vector<char> out(paged.out_bytes(), char(0x5a));
  const PagedAttentionStatus status = paged_attention_cpu_forward(paged.Args(out.data()));
  EXPECT_TRUE(status.ok()) << status.message;
  return out;
}

void ExpectClose(const PagedCase& paged) {
  SCOPED_TRACE(paged.Description());
  EXPECT_LT(RelativeError(Decoded(Forward(paged), paged.shape().type), paged.Expected()),
            PagedCase::Tolerance(paged.shape().type));
}

TEST(PagedAttentionTest, IsTheAttentionOfEverySequenceOverItsBlocks) {
  for (const DataType type : kAllTypes) {
    for (const int head_dim : {2, 64, 80, 96, 128, 256}) {
      for (const int block_size : {1, 8, 16, 32}) {
        ExpectClose(PagedCase({.type = type, .head_dim = head_dim, .block_size = block_size}, {1, 37, 0, 64, 129}, 1));
      }
    }
  }
}

TEST(PagedAttentionTest, QueryHeadsShareKvHeads) {
  for (const DataType type : kAllTypes) {
    for (const auto& [num_heads, num_kv_heads] : {std::pair(4, 4), {8, 2}, {6, 1}, {40, 1}, {32, 8}}) {
      ExpectClose(PagedCase({.type = type, .num_heads = num_heads, .num_kv_heads = num_kv_heads}, {33, 5}, 2));
    }
  }
}

TEST(PagedAttentionTest, LongContextsHaveManySplits) {
  for (const DataType type : kAllTypes) ExpectClose(PagedCase({.type = type}, {5000, 1, 700}, 3));
}

TEST(PagedAttentionTest, BitsDoNotDependOnPlacesBlockSizesStridesOrOtherSequences) {
  for (const DataType type : kAllTypes) {
    const std::vector<int> lens = {70, 0, 600, 1};
    const std::vector<char> expected = Forward(PagedCase({.type = type}, lens, 4));
    for (const int block_size : {1, 2, 16, 64}) {
      for (const int gap : {0, 3}) {
        const PagedCase other({.type = type, .block_size = block_size, .gap = gap, .placement_seed = 5}, lens, 4);
        EXPECT_EQ(Forward(other), expected) << other.Description();
      }
    }
    PagedCase alone({.type = type}, lens, 4);
    alone.context_lens() = {0, 0, 600, 0};
    const size_t row = alone.out_bytes() / lens.size();
    const std::vector<char> out = Forward(alone);
    EXPECT_TRUE(std::equal(out.begin() + 2 * row, out.begin() + 3 * row, expected.begin() + 2 * row));
    EXPECT_EQ(std::count(out.begin(), out.begin() + 2 * row, 0), std::ptrdiff_t(2 * row))
        << "a sequence without context must give zeros";
  }
}

TEST(PagedAttentionTest, SequencesMayShareBlocks) {
  PagedCase paged({.block_size = 16}, {100, 100, 40}, 6);
  for (int i = 0; i < 3; ++i) {  // 48 tokens of the first sequence; the last sequence sees 40 of them.
    paged.Table(1)[i] = paged.Table(0)[i];
    paged.Table(2)[i] = paged.Table(0)[i];
  }
  ExpectClose(paged);
}

TEST(PagedAttentionTest, ScaleIsAnArgument) {
  PagedCase paged({.scale = 0.5}, {20, 300}, 7);
  ExpectClose(paged);
}

TEST(PagedAttentionTest, NoSequencesAreNoWork) {
  ExpectClose(PagedCase({}, {}, 8));
  ExpectClose(PagedCase({}, {0, 0}, 8));
}

// A mistake in the arguments, and a part of its message.
struct Mistake {
  void (*make)(PagedAttentionArgs*);
  const char* message;
};

TEST(PagedAttentionTest, MistakesAreNamedWithTheirLimit) {
  const Mistake mistakes[] = {
      {[](PagedAttentionArgs* args) { args->num_seqs = -1; }, "num_seqs is -1, must be in [0, 2147483647]"},
      {[](PagedAttentionArgs* args) { args->num_heads = 0; }, "num_heads is 0, must be in [1, "},
      {[](PagedAttentionArgs* args) { args->num_heads = 5; }, "num_heads is 5, must be a multiple of num_kv_heads 2"},
      {[](PagedAttentionArgs* args) { args->num_heads = 2000000000; }, "num_heads is 2000000000, a query of head_dim"},
      {[](PagedAttentionArgs* args) { args->num_kv_heads = 0; }, "num_kv_heads is 0, must be in [1, "},
      {[](PagedAttentionArgs* args) { args->head_dim = 63; }, "head_dim is 63, must be even and at most 256"},
      {[](PagedAttentionArgs* args) { args->head_dim = 258; }, "head_dim is 258, must be even and at most 256"},
      {[](PagedAttentionArgs* args) { args->block_size = 24; }, "block_size is 24, must be 1, 2, 4, 8 or a multiple"},
      {[](PagedAttentionArgs* args) { args->num_blocks = int64_t{1} << 31; }, "num_blocks is 2147483648, must be in"},
      {[](PagedAttentionArgs* args) { args->max_context_len = 0; }, "max_context_len is 0, must be in [1, "},
      {[](PagedAttentionArgs* args) { args->max_context_len = 39; }, "context_lens[1] is 40, above max_context_len 39"},
      {[](PagedAttentionArgs* args) { args->max_blocks = 2; },
       "context_lens[1] is 40, above the 32 tokens that block_tables has room for (2 blocks of 16)"},
      {[](PagedAttentionArgs* args) { args->num_blocks = 1; }, "must be in [0, 1), the blocks of key_cache"},
      {[](PagedAttentionArgs* args) { args->scale = std::nan(""); }, "scale is nan, must be finite"},
  };
  const PagedCase paged({.num_heads = 4, .num_kv_heads = 2, .block_size = 16}, {30, 40}, 9);
  for (const Mistake& mistake : mistakes) {
    std::vector<char> out(paged.out_bytes(), char(0x5a));
    PagedAttentionArgs args = paged.Args(out.data());
    mistake.make(&args);
    const PagedAttentionStatus status = paged_attention_cpu_forward(args);
    EXPECT_EQ(status.code, PagedAttentionStatus::kInvalidArgument) << mistake.message;
    EXPECT_THAT(status.message, HasSubstr(mistake.message));
    EXPECT_EQ(std::count(out.begin(), out.end(), char(0x5a)), std::ptrdiff_t(out.size())) << "wrote on an error";
  }
}

TEST(PagedAttentionTest, WrongEntriesAreNamedWithTheirPlace) {
  const auto message_for = [](int sequence, int entry, int block, int context_len) {
    PagedCase paged({.block_size = 16}, {30, 40}, 10);
    if (entry >= 0) paged.Table(sequence)[entry] = block;
    paged.context_lens()[sequence] = context_len;
    std::vector<char> out(paged.out_bytes());
    return paged_attention_cpu_forward(paged.Args(out.data())).message;
  };
  EXPECT_EQ(message_for(1, 2, -7, 40), "block_tables[1, 2] is -7, must be in [0, 5), the blocks of key_cache");
  EXPECT_EQ(message_for(0, 1, 5, 30), "block_tables[0, 1] is 5, must be in [0, 5), the blocks of key_cache");
  EXPECT_EQ(message_for(0, 1, -7, 16), "") << "nobody sees that entry";
  EXPECT_EQ(message_for(1, -1, 0, -3), "context_lens[1] is -3, must be at least 0");
  EXPECT_EQ(message_for(1, -1, 0, std::numeric_limits<int>::max()),
            "context_lens[1] is 2147483647, above max_context_len 48");
}

}  // namespace
}  // namespace quire
