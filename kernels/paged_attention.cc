// SPDX-License-Identifier: Apache-2.0

#include "kernels/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kv_layout.h"

namespace quire {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

using Status = PagedAttentionStatus;

std::string Text(int64_t number) {
  return std::to_string(number);
}

bool IsBlockSize(int64_t size) {
  return size == 1 || size == 2 || size == 4 || size == 8 || (size > 0 && size % KvLayout::kUnitTokens == 0);
}

std::string WhyNotContext(const PagedAttentionArgs& args, int64_t sequence, int64_t context_len) {
  const std::string what = "context_lens[" + Text(sequence) + "] is " + Text(context_len);
  if (context_len < 0) return what + ", must be at least 0";
  if (context_len > args.max_context_len) return what + ", above max_context_len " + Text(args.max_context_len);
  // The comparison avoids a product of block_size and max_blocks, because both may be large.
  if ((context_len + args.block_size - 1) / args.block_size > args.max_blocks) {
    return what + ", above the " + Text(args.max_blocks * args.block_size) +
           " tokens that block_tables has room for (" + Text(args.max_blocks) + " blocks of " + Text(args.block_size) +
           ")";
  }
  return "";
}

}  // namespace

Status CheckPagedAttentionShape(const PagedAttentionArgs& args) {
  const struct {
    const char* name;
    int64_t value;
    int64_t least;
  } sizes[] = {{"num_seqs", args.num_seqs, 0},     {"num_heads", args.num_heads, 1},
               {"head_dim", args.head_dim, 1},     {"num_blocks", args.num_blocks, 0},
               {"block_size", args.block_size, 1}, {"num_kv_heads", args.num_kv_heads, 1},
               {"max_blocks", args.max_blocks, 0}, {"max_context_len", args.max_context_len, 1}};
  for (const auto& size : sizes) {
    if (size.value < size.least || size.value > kMaxInt32) {
      return Status::Invalid(std::string(size.name) + " is " + Text(size.value) + ", must be in [" + Text(size.least) +
                             ", " + Text(kMaxInt32) + "]");
    }
  }
  if (args.head_dim % 2 != 0 || args.head_dim > kMaxHeadDim) {
    return Status::Invalid("head_dim is " + Text(args.head_dim) + ", must be even and at most " + Text(kMaxHeadDim));
  }
  if (!IsBlockSize(args.block_size)) {
    return Status::Invalid("block_size is " + Text(args.block_size) + ", must be 1, 2, 4, 8 or a multiple of 16");
  }
  if (args.num_heads % args.num_kv_heads != 0) {
    return Status::Invalid("num_heads is " + Text(args.num_heads) + ", must be a multiple of num_kv_heads " +
                           Text(args.num_kv_heads));
  }
  if (args.num_heads > kMaxInt32 / std::max<int64_t>(1, args.head_dim)) {
    return Status::Invalid("num_heads is " + Text(args.num_heads) + ", a query of head_dim " + Text(args.head_dim) +
                           " must have at most " + Text(kMaxInt32) + " elements");
  }
  if (!std::isfinite(args.scale)) {
    return Status::Invalid("scale is " + std::to_string(args.scale) + ", must be finite");
  }
  return {};
}

Status PlanPagedAttention(const PagedAttentionArgs& args, const int32_t* block_tables, const int32_t* context_lens,
                          PagedAttentionStep* step) {
  *step = {};
  step->positions.resize(args.num_seqs);
  std::vector<int32_t> copy_of(args.num_blocks, -1);
  for (int64_t sequence = 0; sequence < args.num_seqs; ++sequence) {
    const int32_t context_len = context_lens[sequence];
    if (std::string why = WhyNotContext(args, sequence, context_len); !why.empty()) return Status::Invalid(why);
    step->positions[sequence] = context_len - 1;
    if (context_len == 0) continue;
    const int32_t* const table = block_tables + sequence * args.max_blocks;
    for (int64_t i = 0; i * args.block_size < context_len; ++i) {
      if (table[i] < 0 || table[i] >= args.num_blocks) {
        return Status::Invalid("block_tables[" + Text(sequence) + ", " + Text(i) + "] is " + Text(table[i]) +
                               ", must be in [0, " + Text(args.num_blocks) + "), the blocks of key_cache");
      }
      int32_t& copy = copy_of[table[i]];
      if (copy < 0) {
        copy = int32_t(step->used_blocks.size());
        step->used_blocks.push_back({uint32_t(table[i]), 0});
      }
      const int64_t num_tokens = std::min(args.block_size, context_len - i * args.block_size);
      step->used_blocks[copy].num_tokens = std::max(step->used_blocks[copy].num_tokens, int32_t(num_tokens));
      step->block_tables.push_back(uint32_t(copy));
    }
    if (step->block_tables.size() > size_t(kMaxInt32)) {
      return Status::Invalid("block_tables has more than " + Text(kMaxInt32) + " blocks in use");
    }
    step->rows.push_back(int32_t(sequence));
    step->query_starts.push_back(int32_t(step->rows.size()));
    step->context_lens.push_back(context_len);
    step->table_starts.push_back(int32_t(step->block_tables.size()));
  }
  return {};
}

}  // namespace quire
