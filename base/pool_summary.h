// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_POOL_SUMMARY_H_
#define QUIRE_BASE_POOL_SUMMARY_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/cache_groups.h"
#include "base/number_text.h"

namespace quire {

// Says how much a pool holds, in blocks, in tokens and in sequences of 4096 tokens, or of the model's context if that
// is shorter: "2048 blocks of 16 tokens (32768 tokens, or 8 sequences of 4096 tokens)". With several cache groups, the
// number of tokens depends on the lengths of the sequences, so it is left out.
inline std::string PoolSummary(int64_t num_blocks, const CacheGroups& groups, int max_context_tokens) {
  const int length = std::min(4096, max_context_tokens);
  return absl::StrCat(Counted(static_cast<uint64_t>(num_blocks), "block"), " of ", groups.block_size(), " tokens (",
                      groups.size() == 1 ? absl::StrCat(num_blocks * groups.block_size(), " tokens, or ") : "",
                      Counted(static_cast<uint64_t>(num_blocks / groups.NumBlocks(length)), "sequence"), " of ", length,
                      " tokens)");
}

}  // namespace quire

#endif  // QUIRE_BASE_POOL_SUMMARY_H_
