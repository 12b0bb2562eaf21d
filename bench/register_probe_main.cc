// SPDX-License-Identifier: Apache-2.0

// Measures how fast the machine multiplies when all operands are in registers. Benchmarks print it beside their
// figures: on a virtual machine it tells when other guests slow the cores, which the guest's own load does not show.

#include <cstdint>
#include <cstdio>
#include <thread>

#include <nlohmann/json.hpp>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "base/flags.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/register_loops.h"

ABSL_FLAG(int32_t, threads, 0, "Threads that multiply; 0: one per core.");
ABSL_FLAG(int32_t, milliseconds, 40, "Time of each measurement.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "register_probe",
      "multiplies numbers in registers with all cores and prints, as JSON, 10^9 operations per second of each "
      "instruction that the machine has; a multiplication and an addition are two operations.",
      "[flags]",
      {{"Load:", {"threads", "milliseconds"}}}};
  return *flags;
}

absl::Status Run() {
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("threads", absl::GetFlag(FLAGS_threads), 0, 1024));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("milliseconds", absl::GetFlag(FLAGS_milliseconds), 1, 60'000));
  const int threads = absl::GetFlag(FLAGS_threads) > 0 ? absl::GetFlag(FLAGS_threads)
                                                       : static_cast<int>(std::thread::hardware_concurrency());
  nlohmann::ordered_json rates = nlohmann::ordered_json::object();
  for (const RegisterLoop& loop : SupportedRegisterLoops()) {
    rates[loop.name] = MeasureRegisterLoop(loop, threads, 1e-3 * absl::GetFlag(FLAGS_milliseconds)) / 1e9;
  }
  std::printf("%s\n", rates.dump().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
