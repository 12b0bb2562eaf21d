// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_MUTANT_RUNS_H_
#define QUIRE_TESTS_SIM_MUTANT_RUNS_H_

#include <string>

namespace quire {

// Runs every program in `folder` whose name contains `only`. Each program is the simulator with one planted bug in the
// core. It runs until it finds a failure or `seconds` have passed, and the time is printed. Returns true if there was
// at least one program and all bugs were found.
bool CatchMutants(const std::string& folder, const std::string& only, double seconds, int jobs);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_MUTANT_RUNS_H_
