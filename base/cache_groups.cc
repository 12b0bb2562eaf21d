// SPDX-License-Identifier: Apache-2.0

#include "base/cache_groups.h"

#include "base/check.h"

namespace quire {

CacheGroups::CacheGroups(int block_size, absl::Span<const CacheGroup> groups, int max_slice_tokens)
    : block_size_(block_size), max_slice_tokens_(max_slice_tokens), groups_(groups.begin(), groups.end()) {
  QUIRE_CHECK_GE(block_size, 1);
  QUIRE_CHECK_GE(max_slice_tokens, 1);
  QUIRE_CHECK(!groups.empty());
  QUIRE_CHECK_EQ(groups.front().blocks_per_sheet, 1);
  for (const CacheGroup& group : groups) {
    QUIRE_CHECK_GE(group.window_tokens, 0);
    QUIRE_CHECK_GE(group.blocks_per_sheet, 1);
  }
}

int64_t CacheGroups::MaxLiveSheets(int index, int64_t num_tokens) const {
  const int64_t num_sheets = (num_tokens + block_size_ - 1) / block_size_;
  const int64_t window = groups_[index].window_tokens;
  if (window == 0) return num_sheets;
  // A slice of m tokens reads and writes window + m consecutive tokens. They may begin at the end of a sheet.
  const int64_t num_read = window + std::min<int64_t>(num_tokens, max_slice_tokens_);
  return std::min(num_sheets, (num_read + block_size_ - 2) / block_size_ + 1);
}

int64_t CacheGroups::NumBlocks(int64_t num_tokens) const {
  int64_t num_blocks = 0;
  for (int i = 0; i < size(); ++i) num_blocks += groups_[i].blocks_per_sheet * MaxLiveSheets(i, num_tokens);
  return num_blocks;
}

int64_t CacheGroups::NumSharedBlocks(int64_t num_tokens) const {
  int64_t num_blocks = 0;
  for (const CacheGroup& group : groups_) {
    if (group.window_tokens == 0) num_blocks += group.blocks_per_sheet * (num_tokens / block_size_);
  }
  return num_blocks;
}

}  // namespace quire
