#ifndef QUIRE_TESTS_SIM_SHRINK_H_
#define QUIRE_TESTS_SIM_SHRINK_H_

#include <functional>

#include "tests/sim/scenario.h"

namespace quire {

// A smaller scenario that still fails: events that are not needed go (delta debugging: Zeller and Hildebrandt, 2002),
// then workers, then parameters return to their defaults or half-way there, until nothing more helps or `fails` was
// asked `max_attempts` times. REQUIRES: fails(scenario).
Scenario Shrink(Scenario scenario, const std::function<bool(const Scenario&)>& fails, int max_attempts);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SHRINK_H_
