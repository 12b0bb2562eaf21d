#include "scheduler/admission.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace quire {

absl::Status CheckCanEverFit(const Request& request, const SchedulerOptions& options, const BlockManager& blocks) {
  if (request.prompt.empty()) return absl::InvalidArgumentError("prompt has 0 tokens, it must have at least 1");
  if (request.max_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens is ", request.max_tokens, ", it must be at least 1"));
  }
  const int64_t num_tokens = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (num_tokens > options.max_context_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("prompt has ", request.prompt.size(), " tokens and max_tokens is ",
                                                   request.max_tokens, ", together ", num_tokens,
                                                   "; the context has at most ", options.max_context_tokens));
  }
  const int64_t num_blocks = (num_tokens - 1 + blocks.block_size() - 1) / blocks.block_size();
  if (num_blocks > blocks.num_blocks()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "prompt has ", request.prompt.size(), " tokens and max_tokens is ", request.max_tokens, ": this takes ",
        num_blocks, " KV blocks of ", blocks.block_size(), " tokens, the pool has ", blocks.num_blocks()));
  }
  return absl::OkStatus();
}

int WatermarkBlocks(double watermark, int num_blocks) {
  return static_cast<int>(std::ceil(watermark * num_blocks));
}

bool HasRoom(int num_needed, int num_free, int watermark_blocks, bool is_idle) {
  return num_needed <= (is_idle ? num_free : num_free - watermark_blocks);
}

int64_t NumStartTokens(const Request& request, int num_tokens) {
  const SamplingParams& sampling = request.sampling;
  size_t num_listed = 2 * sampling.logit_bias.size() + sampling.allowed_token_ids.size() + sampling.bad_words.size() +
                      sampling.min_tokens_masked_ids.size();
  for (const std::vector<TokenId>& word : sampling.bad_words) num_listed += word.size();
  return num_tokens + static_cast<int64_t>(num_listed);
}

}  // namespace quire
