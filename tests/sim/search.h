// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SEARCH_H_
#define QUIRE_TESTS_SIM_SEARCH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_report.h"

namespace quire {

// The limits of a search for a failure. The search ends when one of them is reached. 0 means no limit.
struct SearchOptions {
  uint64_t first_seed = 1;
  int64_t seeds = 0;
  int64_t events = 0;
  double seconds = 0;
  int jobs = 2;  // The number of processes.
};

struct SearchResult {
  SimReport report;
  double seconds = 0;
  std::optional<uint64_t> failed_seed;  // The lowest seed that had failed when the search ended.
  std::string message;                  // The error of this seed.
};

// Runs a scenario in this process. Some are run twice and must make the same plans.
absl::Status RunScenario(const Scenario& scenario, bool is_run_twice, SimReport* report);

// Runs the scenarios of consecutive seeds, divided among several processes. Stops at the first failure.
SearchResult Search(const SearchOptions& options);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SEARCH_H_
