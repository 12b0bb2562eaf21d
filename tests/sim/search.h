#ifndef QUIRE_TESTS_SIM_SEARCH_H_
#define QUIRE_TESTS_SIM_SEARCH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_report.h"

namespace quire {

// How long to look for a failure: until one of the limits is reached. 0: no limit.
struct SearchOptions {
  uint64_t first_seed = 1;
  int64_t seeds = 0;
  int64_t events = 0;
  double seconds = 0;
  int jobs = 2;  // Processes.
};

struct SearchResult {
  SimReport report;
  double seconds = 0;
  std::optional<uint64_t> failed_seed;  // The lowest that failed when the search ended.
  std::string message;                  // Of it.
};

// Runs a scenario in this process. Some are run twice and must make the same plans.
absl::Status RunScenario(const Scenario& scenario, bool is_run_twice, SimReport* report);

// The scenarios of seeds from the first one on, in several processes that take turns. Stops at the first failure.
SearchResult Search(const SearchOptions& options);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SEARCH_H_
