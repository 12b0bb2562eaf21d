// SPDX-License-Identifier: Apache-2.0

#include "worker/pool_size.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "base/worker_protocol.h"
#include "worker/cache_grouping.h"

namespace quire {
namespace {

// Returns the number of blocks that the rows can fill when every sequence has the model's full context.
int64_t UsefulBlocks(const WorkerLimits& limits) {
  return limits.max_sequences * CacheGroupsOf(limits).NumBlocks(limits.max_context_tokens);
}

// Formats a size as in "2048 bytes (2.0 KiB)".
std::string Exact(int64_t bytes) {
  return bytes < 1024 ? FormatBytes(bytes) : absl::StrCat(bytes, " bytes (", FormatBytes(bytes), ")");
}

// The size that a request asks for, before any limit is applied.
struct Wish {
  int64_t blocks;
  std::string text;  // The request in error messages.
  bool is_exact;     // Whether more than kMaxWorkerBlocks is an error. Otherwise it is cut.
};

Wish WishOf(const PoolRequest& request, int64_t block_bytes, const WorkerLimits& limits, int64_t available_bytes) {
  if (request.num_blocks) return {*request.num_blocks, absl::StrCat("--num-blocks is ", *request.num_blocks), true};
  if (request.bytes) return {*request.bytes / block_bytes, absl::StrCat("--kv-bytes is ", Exact(*request.bytes)), true};
  const auto bytes = static_cast<int64_t>(available_bytes * request.memory_fraction.value_or(request.default_fraction));
  if (request.memory_fraction) {
    return {bytes / block_bytes, absl::StrCat("--memory-fraction=", *request.memory_fraction, " is ", Exact(bytes)),
            false};
  }
  return {std::min(bytes / block_bytes, UsefulBlocks(limits)),
          absl::StrCat(request.default_fraction, " of the available memory is ", Exact(bytes)), false};
}

// Returns the number of blocks, or an error with the limit that the request exceeds.
absl::StatusOr<uint32_t> Grant(const Wish& wish, const KvLayout& layout, int64_t available_bytes) {
  const int64_t block_bytes = static_cast<int64_t>(layout.block_bytes_all_layers());
  if (wish.blocks < 1) {
    return absl::ResourceExhaustedError(absl::StrCat(wish.text, ", the minimum is ", Exact(block_bytes),
                                                     ": one block of ", layout.block_size, " tokens"));
  }
  if (wish.is_exact && wish.blocks > kMaxWorkerBlocks) {
    return absl::InvalidArgumentError(absl::StrCat(wish.text, ", the maximum is ",
                                                   Exact(kMaxWorkerBlocks * block_bytes), ": ", kMaxWorkerBlocks,
                                                   " blocks of ", layout.block_size, " tokens"));
  }
  const int64_t blocks = std::min<int64_t>(wish.blocks, kMaxWorkerBlocks);
  if (blocks > available_bytes / block_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(wish.text, ", which needs ", Exact(blocks * block_bytes),
                                                     "; available: ", Exact(available_bytes)));
  }
  return static_cast<uint32_t>(blocks);
}

}  // namespace

absl::StatusOr<uint32_t> PlanPool(const PoolRequest& request, const KvLayout& layout, const WorkerLimits& limits,
                                  int64_t available_bytes) {
  const int64_t block_bytes = static_cast<int64_t>(layout.block_bytes_all_layers());
  if (request.num_blocks.has_value() + request.bytes.has_value() + request.memory_fraction.has_value() > 1) {
    return absl::InvalidArgumentError("the pool's size is given more than once: use one of blocks, bytes and fraction");
  }
  return Grant(WishOf(request, block_bytes, limits, available_bytes), layout, available_bytes);
}

absl::StatusOr<uint32_t> PlanHostTier(int64_t bytes, const KvLayout& layout, int64_t available_bytes) {
  if (bytes == 0) return 0;
  const int64_t block_bytes = static_cast<int64_t>(layout.block_bytes_all_layers());
  return Grant({bytes / block_bytes, absl::StrCat("--swap-bytes is ", Exact(bytes)), true}, layout, available_bytes);
}

}  // namespace quire
