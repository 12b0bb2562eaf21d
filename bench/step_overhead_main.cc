// SPDX-License-Identifier: Apache-2.0

// Measures the manager's cost per step (Plan, Commit, encoding and decoding) for several numbers of running sequences,
// and the cost of each operation of the block manager.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/block_operations.h"
#include "bench/step_overhead.h"

ABSL_FLAG(std::string, sequences, "64,256,1024,4096", "Numbers of running sequences, separated by commas.");
ABSL_FLAG(int32_t, context_tokens, 4096, "Tokens of each sequence when the measurement begins.");
ABSL_FLAG(int32_t, block_size, 16, "Tokens per block.");
ABSL_FLAG(int32_t, steps, 0, "Measured steps; 0: 256000 divided by the number of sequences, and between 100 and 2000.");
ABSL_FLAG(int32_t, rounds, 5, "Rounds of the block operations; 0: none.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "step_overhead",
      "measures the manager's own CPU time per decode step and per operation on blocks, without a worker.",
      "[flags]",
      {{"Load:", {"sequences", "context_tokens", "block_size"}}, {"Length:", {"steps", "rounds"}}}};
  return *flags;
}

absl::StatusOr<std::vector<int>> NumbersOfSequences() {
  std::vector<int> numbers;
  const std::string value = absl::GetFlag(FLAGS_sequences);
  for (const absl::string_view part : absl::StrSplit(value, ',')) {
    int number;
    if (!absl::SimpleAtoi(part, &number) || number < 1 || number > 65536) {
      return absl::InvalidArgumentError(
          absl::StrCat("--sequences is '", value, "', it must be numbers of 1 .. 65536, separated by commas"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

void PrintQuantiles(const Samples& seconds) {
  std::printf(" %9.1f %8.1f", seconds.Median() * 1e6, seconds.Quantile(0.99) * 1e6);
}

void MeasureSteps(const StepOverheadOptions& options) {
  const StepOverhead times = MeasureStepOverhead(options);
  std::printf("%9d", options.num_sequences);
  for (const Samples* samples : {&times.plan, &times.commit, &times.plan_and_commit, &times.encode, &times.decode}) {
    PrintQuantiles(*samples);
  }
  std::printf(" %9.1f\n", times.plan_and_commit.Median() * 1e9 / options.num_sequences);
}

void PrintOperation(const char* name, const Samples& seconds) {
  std::printf("%-52s %12.0f %10.3f %10.3f %10.3f\n", name, 1 / seconds.Median(), seconds.Median() * 1e6,
              seconds.Quantile(0) * 1e6, seconds.Quantile(1) * 1e6);
}

void MeasureOperations(const BlockOperationsOptions& options) {
  const BlockOperations times = MeasureBlockOperations(options);
  std::printf("\n%d sequences of %d tokens in blocks of %d hold the pool; median, least and most of %d rounds.\n",
              options.num_sequences, options.context_tokens, options.block_size, options.num_rounds);
  std::printf("%-52s %12s %10s %10s %10s\n", "operation", "per second", "us", "least", "most");
  PrintOperation("allocate one block", times.allocate_block);
  PrintOperation("allocate one block that is evicted first", times.evict_block);
  PrintOperation("publish one block to the prefix cache", times.publish_block);
  PrintOperation("fork a sequence", times.fork);
  PrintOperation("free a fork", times.free_fork);
  PrintOperation("free a sequence whose blocks stay cached", times.free_last);
  PrintOperation("prefix match, all but the last block cached", times.find_hit);
  PrintOperation("prefix match, nothing cached", times.find_miss);
  PrintOperation("adopt a cached prefix", times.adopt);
  PrintOperation("copy the states of all blocks for a watch", times.copy_states);
  PrintOperation("audit all blocks", times.audit);
}

absl::Status Run() {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<int> numbers, NumbersOfSequences());
  const int context_tokens = absl::GetFlag(FLAGS_context_tokens);
  const int block_size = absl::GetFlag(FLAGS_block_size);
  const int steps = absl::GetFlag(FLAGS_steps);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("block_size", block_size, 1, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("context_tokens", context_tokens, 2 * block_size, 1 << 17));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("steps", steps, 0, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("rounds", rounds, 0, 1000));
  std::printf("Decode steps, %d tokens of context, blocks of %d, prefix cache on. CPU time of the thread in us.\n",
              context_tokens, block_size);
  std::printf("%9s %18s %18s %18s %18s %18s %9s\n", "", "plan", "commit", "plan + commit", "encode", "decode", "");
  std::printf("%9s", "sequences");
  for (int i = 0; i < 5; ++i) std::printf(" %9s %8s", "median", "p99");
  std::printf(" %9s\n", "ns/seq");
  for (const int number : numbers) {
    const int automatic = std::min(std::max(256'000 / number, 100), 2000);
    MeasureSteps({number, context_tokens, block_size, steps > 0 ? steps : automatic});
  }
  if (rounds > 0) MeasureOperations({256, context_tokens - context_tokens % block_size, block_size, rounds});
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
