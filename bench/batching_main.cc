// SPDX-License-Identifier: Apache-2.0

// Measures the benefit of continuous batching and chunked prefill, and the cost of preemption when memory is short. It
// runs the production scheduler over a trace with a simulated worker.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/conversations.h"
#include "bench/serving_sim.h"

ABSL_FLAG(
    std::string, trace, "../shared/traces/azure_conv.csv",
    "Azure LLM inference trace (TIMESTAMP,ContextTokens,GeneratedTokens). If the file is missing, the lengths are "
    "drawn from the quantiles of this trace.");
ABSL_FLAG(int32_t, requests, 2000, "Number of requests. They are the first ones of the trace.");
ABSL_FLAG(int32_t, pool_tokens, 1 << 17, "Tokens that the pool holds.");
ABSL_FLAG(int32_t, max_sequences, 256, "Largest number of sequences that run at the same time.");
ABSL_FLAG(double, load, 0.7,
          "Rate of arrivals when latencies are measured, as a share of the rate that continuous batching can serve.");

namespace quire {
namespace {

constexpr int kMaxContextTokens = 8192;
constexpr int kBlockSize = 16;

struct SimulatedWorker {
  const char* name;
  StepTime time;
};
constexpr SimulatedWorker kWorkers[] = {
    // bench/step_time measured these values for the bundled model on one core.
    {"CPU, bundled model", {12, 30, 0.07, 10}},
    // These values are not measured. They resemble a 13 B model on one GPU: reading the weights takes most of a step,
    // and tokens are cheap.
    {"GPU-like, assumed", {20'000, 100, 0.05, 100}},
};

struct Mode {
  const char* name;
  Batching batching = Batching::kContinuous;
  int max_chunk_tokens = 512;
  int max_tokens_per_step = 2048;
  double waiting_served_ratio = 0;
};
constexpr Mode kModes[] = {
    {.name = "continuous, chunks of 512"},
    {.name = "continuous, chunks of 128", .max_chunk_tokens = 128, .max_tokens_per_step = 384},
    {.name = "continuous, whole prompts",
     .max_chunk_tokens = kMaxContextTokens,
     .max_tokens_per_step = kMaxContextTokens},
    {.name = "continuous, waiting/served >= 0.3", .waiting_served_ratio = 0.3},
    {.name = "static, chunks of 512", .batching = Batching::kStatic},
};

const ProgramFlags& Flags() {
  static const auto* const flags =
      new ProgramFlags{"batching",
                       "serves a trace in simulated time: continuous and static batching, chunked prefill on and off, "
                       "and a pool that is far too small.",
                       "[flags]",
                       {{"Load:", {"trace", "requests", "load"}}, {"Worker:", {"pool_tokens", "max_sequences"}}}};
  return *flags;
}

ServingSimOptions MakeOptions(const Mode& mode, const StepTime& time) {
  return {.scheduler = {.batching = mode.batching,
                        .waiting_served_ratio = mode.waiting_served_ratio,
                        .max_tokens_per_step = mode.max_tokens_per_step,
                        .max_chunk_tokens = mode.max_chunk_tokens,
                        .max_sequences = absl::GetFlag(FLAGS_max_sequences),
                        .max_context_tokens = kMaxContextTokens},
          .num_blocks = absl::GetFlag(FLAGS_pool_tokens) / kBlockSize,
          .block_size = kBlockSize,
          .step_time = time};
}

void CompareModes(const std::vector<RequestLengths>& requests, const SimulatedWorker& worker) {
  const StepTime& time = worker.time;
  std::printf(
      "\n%s: a step takes %.0f us + %.0f us per token + %.2f us for each pair of a token and a position that it "
      "attends to\n",
      worker.name, time.base_us, time.per_token_us, time.per_context_token_us);
  const std::vector<RequestLengths> at_once = AtRate(requests, 0);
  const double capacity = SimulateServing(at_once, MakeOptions(kModes[0], time)).requests_per_s();
  const double rate = absl::GetFlag(FLAGS_load) * capacity;
  std::printf("%-36s %19s | at %.3f requests/s\n%-36s %9s %9s | %9s %9s %9s %9s %9s\n", "", "all at once", rate, "mode",
              "requests", "tokens/s", "TTFT p50", "p99 (s)", "ITL p50", "p99", "max (ms)");
  for (const Mode& mode : kModes) {
    const ServingSimOptions options = MakeOptions(mode, time);
    const ServingReport saturated = SimulateServing(at_once, options);
    const ServingReport report = SimulateServing(AtRate(requests, rate), options);
    std::printf("%-36s %7.3f/s %9.1f | %9.2f %9.2f %9.2f %9.2f %9.1f\n", mode.name, saturated.requests_per_s(),
                saturated.output_tokens_per_s(), report.first_token_s.Median(), report.first_token_s.Quantile(0.99),
                1e3 * report.token_gaps_s.Median(), 1e3 * report.token_gaps_s.Quantile(0.99),
                1e3 * report.token_gaps_s.Quantile(1));
  }
}

// Measures preemption in a pool that is too small. The pool has 30 % of the most blocks that the trace used when the
// pool was unbounded. Requests arrive at 95 % of the rate that this pool can serve, or all at once.
void MeasurePreemption(const std::vector<RequestLengths>& requests, const SimulatedWorker& worker) {
  ServingSimOptions options = MakeOptions(kModes[0], worker.time);
  options.num_blocks = options.scheduler.max_sequences * kMaxContextTokens / kBlockSize;
  const ServingReport unbounded = SimulateServing(AtRate(requests, 0), options);
  options.num_blocks = static_cast<int>(0.3 * unbounded.most_used_blocks);
  const double capacity = SimulateServing(AtRate(requests, 0), options).requests_per_s();
  std::printf(
      "\n%s: with an unbounded pool, %d sequences hold up to %d blocks; a pool of %d blocks (30 %%) serves %.3f "
      "requests/s.\n"
      "%-44s %9s %9s %11s %9s %11s %9s %9s\n",
      worker.name, options.scheduler.max_sequences, unbounded.most_used_blocks, options.num_blocks, capacity, "",
      "finished", "preempted", "swapped out", "again", "requests/s", "TTFT p99", "ITL p99");
  for (const double load : {0.95, 0.0}) {
    for (const double watermark : {0.05, 0.0}) {
      for (const bool swaps : {false, true}) {
        options.scheduler.watermark = watermark;
        options.num_host_blocks = swaps ? 2 * options.num_blocks : 0;
        const ServingReport report = SimulateServing(AtRate(requests, load * capacity), options);
        char name[64];
        std::snprintf(name, sizeof(name), "%s, watermark %.2f, %s", load > 0 ? "95 % load" : "all at once", watermark,
                      swaps ? "swap" : "recompute");
        std::printf("%-44s %9lld %9lld %11lld %8.2f%% %11.3f %7.1f s %6.1f ms\n", name,
                    static_cast<long long>(report.num_finished), static_cast<long long>(report.counts.preemptions),
                    static_cast<long long>(report.counts.swap_outs), 100 * report.recomputed_share(),
                    report.requests_per_s(), report.first_token_s.Quantile(0.99),
                    1e3 * report.token_gaps_s.Quantile(0.99));
      }
    }
  }
}

absl::Status Run() {
  const int num_requests = absl::GetFlag(FLAGS_requests);
  const double load = absl::GetFlag(FLAGS_load);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("requests", num_requests, 10, 1 << 24));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("pool_tokens", absl::GetFlag(FLAGS_pool_tokens), kMaxContextTokens, 1 << 30));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("max_sequences", absl::GetFlag(FLAGS_max_sequences), 1, 65536));
  if (!(load > 0 && load <= 10)) {
    return absl::InvalidArgumentError(absl::StrCat("--load is ", load, ", it must be above 0 and at most 10"));
  }
  QUIRE_ASSIGN_OR_RETURN(const Conversations conversations,
                         LoadConversations(absl::GetFlag(FLAGS_trace), num_requests, kMaxContextTokens));
  std::printf("%zu requests (%s), a pool of %d tokens, %d rows, simulated time.\n", conversations.requests.size(),
              conversations.source.c_str(), absl::GetFlag(FLAGS_pool_tokens), absl::GetFlag(FLAGS_max_sequences));
  for (const SimulatedWorker& worker : kWorkers) CompareModes(conversations.requests, worker);
  std::printf(
      "\nPreemption in a small pool. again: tokens computed more than once, in %% of all prompt and output tokens.\n");
  for (const SimulatedWorker& worker : kWorkers) MeasurePreemption(conversations.requests, worker);
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
