// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_CHAOS_PROGRAM_H_
#define QUIRE_TESTS_CHAOS_CHAOS_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/flags.h"

namespace quire {

// What the programs of this folder share.

// Reads the flags, calls `run`, which returns whether nothing was wrong, and prints the result. Returns the exit code:
// 0 when nothing was wrong, 1 when something was, 2 when a flag is wrong.
int RunChaosProgram(const ProgramFlags& flags, int argc, const char* const* argv, absl::FunctionRef<bool()> run);

// In seconds, as "0.250".
std::string Seconds(absl::Duration duration);
// The time that `percent` percent of the values do not exceed, as Seconds writes it. "-" when there are no values.
std::string Percentile(std::vector<absl::Duration> values, double percent);

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_CHAOS_PROGRAM_H_
