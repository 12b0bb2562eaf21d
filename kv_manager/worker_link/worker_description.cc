// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/worker_description.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"

namespace quire {
namespace {

// The manager's arrays for each block of the pool: in BlockPool, PrefixTree, BlockTrie, CopiesInFlight and PrefixIndex.
constexpr int64_t kBytesPerBlock = 192;
constexpr int64_t kBytesPerTokenOfBlock = sizeof(TokenId);
constexpr int64_t kBytesPerHostBlock = 32;
constexpr int64_t kBytesPerRow = 256;
// A guide needs the bytes of all tokens, here and as a message.
constexpr int64_t kBytesPerVocabularyEntry = 32;

}  // namespace

absl::Status CheckMemoryFor(const WorkerDescription& worker, int64_t max_bytes) {
  const int64_t bytes = worker.num_blocks * (kBytesPerBlock + worker.block_size * kBytesPerTokenOfBlock) +
                        worker.num_host_blocks * kBytesPerHostBlock + worker.max_sequences * kBytesPerRow +
                        worker.vocab_size * kBytesPerVocabularyEntry;
  if (bytes <= max_bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("worker describes num_blocks ", worker.num_blocks, ", block_size ", worker.block_size,
                   ", num_host_blocks ", worker.num_host_blocks, ", max_sequences ", worker.max_sequences,
                   " and vocab_size ", worker.vocab_size, ", for which the manager would need ", FormatBytes(bytes),
                   " of memory; the limit is ", FormatBytes(max_bytes), " (--max-worker-bytes)"));
}

bool WorkerDescription::HasPoolOf(const WorkerDescription& other) const {
  return num_blocks == other.num_blocks && block_size == other.block_size && groups == other.groups &&
         num_host_blocks == other.num_host_blocks && max_sequences == other.max_sequences &&
         max_tokens_per_step == other.max_tokens_per_step;
}

SchedulerOptions NarrowedTo(const WorkerDescription& worker, SchedulerOptions options) {
  options.max_sequences = worker.max_sequences;
  options.max_tokens_per_step = std::min(options.max_tokens_per_step, worker.max_tokens_per_step);
  options.max_chunk_tokens = std::min(options.max_chunk_tokens, options.max_tokens_per_step);
  options.max_context_tokens = std::min(options.max_context_tokens, worker.max_context_tokens);
  options.keeps_rows = worker.keeps_rows;
  return options;
}

}  // namespace quire
