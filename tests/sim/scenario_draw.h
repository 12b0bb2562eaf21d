#ifndef QUIRE_TESTS_SIM_SCENARIO_DRAW_H_
#define QUIRE_TESTS_SIM_SCENARIO_DRAW_H_

#include <cstdint>

#include "tests/sim/scenario.h"

namespace quire {

// The scenario of a seed. Each has its own subset of the features ("swarm testing": Groce et al., 2012), so that one
// kind of event does not hide what another would find, and its own pools, from too small to ample.
Scenario DrawScenario(uint64_t seed);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SCENARIO_DRAW_H_
