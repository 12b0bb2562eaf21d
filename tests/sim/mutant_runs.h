#ifndef QUIRE_TESTS_SIM_MUTANT_RUNS_H_
#define QUIRE_TESTS_SIM_MUTANT_RUNS_H_

#include <string>

namespace quire {

// Runs every program of `folder`, each the simulator around a core with one planted bug, until it finds a failure or
// `seconds` have passed, and prints how long that took. `only`: those whose name contains it. Returns whether there was
// one at least and all were caught.
bool CatchMutants(const std::string& folder, const std::string& only, double seconds, int jobs);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_MUTANT_RUNS_H_
