// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_PAGED_BATCH_H_
#define QUIRE_TESTS_KERNELS_PAGED_BATCH_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/kernel_test_util.h"

namespace quire {

// A pool of one layer whose blocks are assigned in random order, and the arrays of a step over it. Tokens that nothing
// is stored in are NaN.
class PagedPool {
 public:
  PagedPool(const KvLayout& layout, int num_blocks, Random* random) : layout_(layout), free_(num_blocks) {
    pool_.resize(num_blocks * layout.block_bytes(), char(0xff));
    for (int i = 0; i < num_blocks; ++i) free_[i] = i;
    random->Shuffle(&free_);
  }

  // Returns a block table that has room for `context_len` tokens.
  std::vector<uint32_t> MakeTable(int context_len) {
    std::vector<uint32_t> table;
    for (int tokens = 0; tokens < context_len; tokens += layout_.block_size) {
      table.push_back(free_.back());
      free_.pop_back();
    }
    return table;
  }

  const KvLayout& layout() const { return layout_; }
  void* data() { return pool_.data(); }
  size_t bytes() const { return pool_.size(); }

 private:
  KvLayout layout_;
  std::vector<char> pool_;
  std::vector<uint32_t> free_;
};

// Collects slices of sequences into a BatchView.
class PagedBatch {
 public:
  // Adds the tokens [first_position, context_len) of a sequence whose block table is `table`.
  void Add(const std::vector<uint32_t>& table, int first_position, int context_len, int block_size) {
    for (int position = first_position; position < context_len; ++position) {
      positions_.push_back(position);
      slots_.push_back(int64_t{table[position / block_size]} * block_size + position % block_size);
    }
    query_starts_.push_back(int32_t(positions_.size()));
    context_lens_.push_back(context_len);
    tables_.insert(tables_.end(), table.begin(), table.end());
    table_starts_.push_back(int32_t(tables_.size()));
  }

  BatchView View() const {
    return {.num_tokens = int(positions_.size()),
            .num_sequences = int(context_lens_.size()),
            .token_ids = nullptr,
            .positions = positions_.data(),
            .slots = slots_.data(),
            .query_starts = query_starts_.data(),
            .context_lens = context_lens_.data(),
            .table_starts = table_starts_.data(),
            .block_tables = tables_.data()};
  }

 private:
  std::vector<int32_t> positions_, query_starts_ = {0}, context_lens_, table_starts_ = {0};
  std::vector<int64_t> slots_;
  std::vector<uint32_t> tables_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KERNELS_PAGED_BATCH_H_
