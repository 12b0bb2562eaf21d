// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SHRINK_H_
#define QUIRE_TESTS_SIM_SHRINK_H_

#include <functional>

#include "tests/sim/scenario.h"

namespace quire {

// Returns a smaller scenario that still fails. First it removes events (delta debugging: Zeller and Hildebrandt, 2002),
// then workers. Then it moves parameters to their defaults, or towards them. It ends when nothing more helps, or when
// `fails` was called `max_attempts` times. REQUIRES: fails(scenario).
Scenario Shrink(Scenario scenario, const std::function<bool(const Scenario&)>& fails, int max_attempts);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SHRINK_H_
