// SPDX-License-Identifier: Apache-2.0

// Measures how much of the KV memory holds tokens, with paging and with contiguous reservations, and how much memory
// the sequences of one request save by sharing.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/conversations.h"
#include "bench/memory_waste.h"

ABSL_FLAG(
    std::string, trace, "../shared/traces/azure_conv.csv",
    "Azure LLM inference trace (TIMESTAMP,ContextTokens,GeneratedTokens). Without the file lengths are drawn from "
    "its quantiles.");
ABSL_FLAG(int32_t, requests, 5000, "Requests of the trace.");
ABSL_FLAG(int32_t, pool_tokens, 1 << 17, "Tokens that the pool holds.");
ABSL_FLAG(int32_t, max_context_tokens, 2048, "The model's context; longer requests are left out.");
ABSL_FLAG(int32_t, sharing_requests, 400, "Requests that measure the sharing of samples and beams; 0: none.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "memory_waste",
      "drives the scheduler with a worker that computes nothing, in a saturated pool, and prints the share of KV "
      "memory "
      "that holds live tokens.",
      "[flags]",
      {{"Load:", {"trace", "requests", "sharing_requests"}}, {"Memory:", {"pool_tokens", "max_context_tokens"}}}};
  return *flags;
}

void PrintWaste(const char* name, const std::vector<RequestLengths>& requests, const WasteOptions& options) {
  const SlotUse use = MeasureWaste(requests, options);
  std::printf("%-28s %9.1f %9.1f %9.1f %9.1f %11.1f %10.1f %12lld\n", name, 100 * use.live, 100 * use.later,
              100 * use.never, 100 * use.outside, 100 * use.live_of_allocated(), use.sequences,
              static_cast<long long>(use.preemptions));
}

void PrintDefinitions() {
  std::printf(
      "live: slots that hold the K and V of a token; later: allocated, and filled before their sequence ends; never:\n"
      "allocated and never filled; outside: allocated to nobody (gaps too small, watermark). In %% of all slots,\n"
      "averaged over simulated time while requests wait. live/alloc: live slots in %% of the allocated ones.\n");
}

void PrintWastes(const char* source, const std::vector<RequestLengths>& requests, WasteOptions options) {
  std::printf("\n%zu requests (%s), a pool of %d tokens, contexts up to %d\n%-28s %9s %9s %9s %9s %11s %10s %12s\n",
              requests.size(), source, options.pool_tokens, options.max_context_tokens, "memory", "live", "later",
              "never", "outside", "live/alloc", "sequences", "preemptions");
  options.reservation = Reservation::kMax;
  PrintWaste("contiguous, maximum length", requests, options);
  options.reservation = Reservation::kPowerOfTwo;
  PrintWaste("contiguous, power of two", requests, options);
  options.reservation = Reservation::kOracle;
  PrintWaste("contiguous, oracle", requests, options);
  options.reservation.reset();
  for (const int block_size : {64, 32, 16, 8, 1}) {
    options.block_size = block_size;
    PrintWaste(("blocks of " + std::to_string(block_size)).c_str(), requests, options);
  }
}

void PrintSharing(const char* name, double mean_prompt, double mean_output, int count) {
  const std::vector<RequestLengths> requests = DrawLogNormal(mean_prompt, mean_output, count, /*seed=*/1);
  std::printf("%-36s", name);
  for (const Sharing sharing : {Sharing::kSamples, Sharing::kBeams}) {
    for (const int num : {2, 4, 6}) std::printf(" %8.1f", 100 * MeasureSharing(requests, sharing, num));
  }
  std::printf("\n");
}

absl::Status Run() {
  WasteOptions options;
  options.pool_tokens = absl::GetFlag(FLAGS_pool_tokens);
  options.max_context_tokens = absl::GetFlag(FLAGS_max_context_tokens);
  const int num_requests = absl::GetFlag(FLAGS_requests);
  const int num_sharing = absl::GetFlag(FLAGS_sharing_requests);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_context_tokens", options.max_context_tokens, 64, 1 << 20));
  QUIRE_RETURN_IF_ERROR(
      CheckFlagRange("pool_tokens", options.pool_tokens, 2 * options.max_context_tokens, (1 << 30) - 1));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("requests", num_requests, 10, 1 << 24));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("sharing_requests", num_sharing, 0, 1 << 20));
  QUIRE_ASSIGN_OR_RETURN(const Conversations conversations,
                         LoadConversations(absl::GetFlag(FLAGS_trace), num_requests, options.max_context_tokens));
  PrintDefinitions();
  PrintWastes(conversations.source.c_str(), conversations.requests, options);
  std::vector<RequestLengths> chats = DrawLogNormal(161.31, 337.99, num_requests, /*seed=*/1);
  std::erase_if(chats, [&](const RequestLengths& request) {
    return request.prompt + request.output > options.max_context_tokens;
  });
  PrintWastes("lengths as of ShareGPT, drawn", chats, options);
  if (num_sharing == 0) return absl::OkStatus();
  std::printf(
      "\nBlocks of 16 saved by sharing, in %% of those that the same sequences would hold alone, over simulated time.\n"
      "%d requests of log-normal lengths; beams choose among the candidates of a synthetic model (null_worker.h).\n\n"
      "%-36s %8s %8s %8s %8s %8s %8s\n",
      num_sharing, "mean prompt, mean output", "n=2", "n=4", "n=6", "beam=2", "beam=4", "beam=6");
  PrintSharing("19, 58 tokens (Alpaca)", 19.31, 58.45, num_sharing);
  PrintSharing("161, 338 tokens (ShareGPT)", 161.31, 337.99, num_sharing);
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
