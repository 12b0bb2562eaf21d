// SPDX-License-Identifier: Apache-2.0

// Measures which share of the prompt tokens the prefix cache holds for pools of several sizes, and how long a lookup
// takes.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/prefix_reuse.h"
#include "bench/prompts.h"

ABSL_FLAG(std::string, trace, "../shared/traces/mooncake_conversation.jsonl",
          "Mooncake trace (lines with input_length and hash_ids of 512 tokens). Without the file prompts are drawn.");
ABSL_FLAG(int32_t, prompts, 4000, "Prompts of the trace.");
ABSL_FLAG(int32_t, block_size, 16, "Tokens per block; must divide 512.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "prefix_reuse",
      "replays the prompts of a trace through the prefix cache, in pools of several sizes with LRU eviction.",
      "[flags]",
      {{"Load:", {"trace", "prompts"}}, {"Memory:", {"block_size"}}}};
  return *flags;
}

void PrintReuse(const Prompts& trace, const CacheFootprint& footprint, double share, int block_size) {
  const int num_blocks = std::max(1, static_cast<int>(share * static_cast<double>(footprint.num_blocks)));
  // At 100 % the pool also has room for the partial last block of a prompt.
  const PrefixReuse reuse = MeasurePrefixReuse(trace.prompts, num_blocks + (share >= 1), block_size);
  const double hit_rate = static_cast<double>(reuse.num_hit_tokens) / static_cast<double>(footprint.num_tokens);
  const double of_infinite =
      static_cast<double>(reuse.num_hit_tokens) / static_cast<double>(std::max<int64_t>(1, footprint.num_hit_tokens));
  std::printf("%6.0f %% %11d %9.1f %11.1f %11lld %9lld %9.1f %8.1f %9.1f %8.1f\n", 100 * share, num_blocks,
              100 * hit_rate, 100 * of_infinite, static_cast<long long>(reuse.num_evictions),
              static_cast<long long>(reuse.num_too_long), 1e6 * reuse.find_seconds.Median(),
              1e6 * reuse.find_seconds.Quantile(0.99), 1e6 * reuse.serve_seconds.Median(),
              1e6 * reuse.serve_seconds.Quantile(0.99));
}

absl::Status Run() {
  const int block_size = absl::GetFlag(FLAGS_block_size);
  const int num_prompts = absl::GetFlag(FLAGS_prompts);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("prompts", num_prompts, 1, 1 << 24));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("block_size", block_size, 1, TracedPrompt::kChunkTokens));
  if (TracedPrompt::kChunkTokens % block_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--block-size is ", block_size, ", it must divide 512"));
  }
  QUIRE_ASSIGN_OR_RETURN(const Prompts trace, LoadPrompts(absl::GetFlag(FLAGS_trace), num_prompts));
  const CacheFootprint footprint = MeasureFootprint(trace.prompts, block_size);
  std::printf(
      "%zu prompts (%s), %lld tokens, one after the other.\n"
      "A cache that forgets nothing would hold %lld blocks of %d and hit %.1f %% of the tokens.\n"
      "find: one lookup; serve: all other block work of one prompt. CPU time in us.\n\n"
      "%8s %11s %9s %11s %11s %9s %18s %18s\n%8s %11s %9s %11s %11s %9s %9s %8s %9s %8s\n",
      trace.prompts.size(), trace.source.c_str(), static_cast<long long>(footprint.num_tokens),
      static_cast<long long>(footprint.num_blocks), block_size,
      100.0 * static_cast<double>(footprint.num_hit_tokens) / static_cast<double>(footprint.num_tokens), "pool", "pool",
      "hits", "of infinite", "", "too long", "find       ", "serve      ", "", "blocks", "% tokens", "% hits",
      "evictions", "prompts", "median", "p99", "median", "p99");
  for (const double share : {0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0}) PrintReuse(trace, footprint, share, block_size);
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
