// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SOAK_H_
#define QUIRE_TESTS_SIM_SOAK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "tests/sim/sim_report.h"

namespace quire {

struct SoakOptions {
  int64_t length_us = 0;  // Of the simulated time.
  int64_t quiet_us = 0;   // A quiet moment comes after each such time.
  uint64_t seed = 1;
};

// The state at a quiet moment: nothing has run since the workers came back with empty pools of their first size.
struct QuietMoment {
  double hour = 0;  // Of the simulated time.
  SimReport report;
  int64_t heap_bytes = 0;      // Allocated with malloc and not freed.
  int64_t resident_bytes = 0;  // After malloc has given back what it could.
};

// Runs the step loops of three workers for a long time by a clock that jumps to whatever comes next. Steps take
// milliseconds; requests come at random times and are chats and their follow-ups, long prompts, shared prefixes,
// samples, beams, bursts, and requests that are cancelled, have a deadline or make their worker fail. Workers are lost,
// hang, drain, are drained by the operator, return with other pools, and roll out other models, one worker after the
// other. All checks of SimEngine are on. At each quiet moment nothing may be left over, and the counters must be those
// of the callers. Equal options give equal runs.
//
// The error names the first contradiction. `on_quiet` is called at each quiet moment.
absl::Status RunSoak(const SoakOptions& options, const std::function<void(const QuietMoment&)>& on_quiet,
                     std::map<std::string, int64_t>* num_faults);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SOAK_H_
