// SPDX-License-Identifier: Apache-2.0

#include "scheduler/request_size.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/status_reason.h"

namespace quire {
namespace {

absl::Status CheckRows(const Request& request, const SchedulerOptions& options) {
  const char* field = request.beam.has_value() ? "beam.width" : "n or best_of";
  if (NumRows(request) < 1) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": is ", NumRows(request), ", it must be at least 1"));
  }
  if (NumRows(request) > options.max_sequences) {
    return absl::FailedPreconditionError(absl::StrCat(field, ": is ", NumRows(request), ", the worker runs at most ",
                                                      options.max_sequences, " sequences"));
  }
  return absl::OkStatus();
}

// Describes for errors what the request asks for.
std::string SizeOf(const Request& request, int64_t num_blocks, const BlockManager& blocks) {
  const int num_rows = NumRows(request), num_groups = blocks.groups().size();
  return absl::StrCat(
      "prompt has ", request.prompt.size(), " tokens and stopping.max_tokens is ",
      request.is_prompt_only ? 0 : request.max_tokens,
      num_rows == 1 ? "" : absl::StrCat(", for ", num_rows, request.beam.has_value() ? " beams" : " samples"),
      ": this takes up to ", num_blocks, " KV blocks of ", blocks.block_size(), " tokens",
      num_groups == 1 ? "" : absl::StrCat(" in ", num_groups, " cache groups"));
}

}  // namespace

absl::Status CheckCanEverFit(const Request& request, const SchedulerOptions& options, const BlockManager& blocks) {
  if (request.prompt.empty()) return absl::InvalidArgumentError("prompt has 0 tokens, it must have at least 1");
  if (request.max_tokens < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("stopping.max_tokens: is ", request.max_tokens, ", it must be at least 1"));
  }
  const int num_generated = request.is_prompt_only ? 0 : request.max_tokens;
  const int64_t num_tokens = static_cast<int64_t>(request.prompt.size()) + num_generated;
  if (num_tokens > options.max_context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt has ", request.prompt.size(), " tokens and stopping.max_tokens is ", num_generated,
                     ", together ", num_tokens, "; the context has at most ", options.max_context_tokens));
  }
  QUIRE_RETURN_IF_ERROR(CheckRows(request, options));
  // After a preemption every sample or beam starts again with all of its tokens, in one message to the worker.
  const int64_t num_start_tokens = NumRows(request) * NumStartTokens(request, static_cast<int>(num_tokens));
  if (num_start_tokens > kMaxStartTokens) {
    return absl::InvalidArgumentError(absl::StrCat(NumRows(request), request.beam.has_value() ? " beams" : " samples",
                                                   " of up to ", num_tokens, " tokens and their lists of tokens are ",
                                                   num_start_tokens, " numbers, the limit is ", kMaxStartTokens));
  }
  const int64_t num_blocks = MaxBlocks(request, blocks.groups());
  if (num_blocks > blocks.num_blocks()) {
    return absl::FailedPreconditionError(
        absl::StrCat(SizeOf(request, num_blocks, blocks), ", the pool has ", blocks.num_blocks()));
  }
  return absl::OkStatus();
}

absl::Status CheckFitsShare(const Request& request, const TenantShares& shares, const BlockManager& blocks) {
  const double share = shares.Of(request.tenant).max_blocks_share;
  const int64_t limit = BlocksOfShare(share, blocks.num_blocks());
  const int64_t num_blocks = MaxBlocks(request, blocks.groups());
  if (share >= 1 || num_blocks <= limit) return absl::OkStatus();
  return WithReason(absl::FailedPreconditionError(
                        absl::StrCat(SizeOf(request, num_blocks, blocks), ", tenant \"", request.tenant, "\" may hold ",
                                     limit, " of ", blocks.num_blocks(), " (max_blocks_share is ", share, ")")),
                    "NEVER_FITS",
                    {{"tenant", request.tenant},
                     {"field", "max_blocks_share"},
                     {"value", absl::StrCat(num_blocks)},
                     {"limit", absl::StrCat(limit)}});
}

int64_t MaxBlocks(const Request& request, const CacheGroups& groups) {
  const int64_t num_prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const int64_t num_shared = groups.NumSharedBlocks(num_prompt_tokens);
  return num_shared + NumRows(request) * (groups.NumBlocks(num_prompt_tokens + request.max_tokens - 1) - num_shared);
}

int64_t NumStartTokens(const Request& request, int num_tokens) {
  const SamplingParams& sampling = request.sampling;
  size_t num_listed = 2 * sampling.logit_bias.size() + sampling.allowed_token_ids.size() + sampling.bad_words.size() +
                      sampling.min_tokens_masked_ids.size();
  for (const std::vector<TokenId>& word : sampling.bad_words) num_listed += word.size();
  if (sampling.guide != nullptr) {
    for (const std::string& text : sampling.guide->texts) num_listed += text.size() / sizeof(TokenId);
  }
  if (request.record != nullptr) num_listed += request.record->size() / sizeof(TokenId);
  return num_tokens + static_cast<int64_t>(num_listed);
}

}  // namespace quire
