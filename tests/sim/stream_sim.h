// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_STREAM_SIM_H_
#define QUIRE_TESTS_SIM_STREAM_SIM_H_

#include <cstdint>

#include "absl/status/status.h"

namespace quire {

// Runs one TokenStream: an engine tells it tokens, its jobs wait until the simulator runs them, and a client reads
// slowly, leaves, resumes in other calls or cancels. Managers are lost, and the next one makes a new stream. Everything
// is drawn from the seed. An error says what was wrong, and the events before it, one letter for each.
absl::Status RunStreamScenario(uint64_t seed);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_STREAM_SIM_H_
