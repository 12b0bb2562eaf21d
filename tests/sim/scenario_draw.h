// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SCENARIO_DRAW_H_
#define QUIRE_TESTS_SIM_SCENARIO_DRAW_H_

#include <cstdint>

#include "tests/sim/scenario.h"

namespace quire {

// Returns the scenario of a seed. Each scenario uses its own subset of the features ("swarm testing": Groce et al.,
// 2012), so that one kind of event does not hide bugs that another would find. Each also has its own pool sizes: some
// are too small, and some are more than large enough.
Scenario DrawScenario(uint64_t seed);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SCENARIO_DRAW_H_
