// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_POOL_SUMMARY_H_
#define QUIRE_BASE_POOL_SUMMARY_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/num_blocks.h"

namespace quire {

// Says how much a pool holds, in blocks, in tokens and in sequences of 4096 tokens, or of the model's context if that
// is shorter: "2048 blocks of 16 tokens (32768 tokens, or 8 sequences of 4096 tokens)".
inline std::string PoolSummary(int64_t num_blocks, int block_size, int max_context_tokens) {
  const int length = std::min(4096, max_context_tokens);
  return absl::StrCat(Counted(static_cast<uint64_t>(num_blocks), "block"), " of ", block_size, " tokens (",
                      num_blocks * block_size, " tokens, or ",
                      Counted(static_cast<uint64_t>(num_blocks / NumBlocksFor(length, block_size)), "sequence"), " of ",
                      length, " tokens)");
}

}  // namespace quire

#endif  // QUIRE_BASE_POOL_SUMMARY_H_
