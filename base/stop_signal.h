// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_STOP_SIGNAL_H_
#define QUIRE_BASE_STOP_SIGNAL_H_

#include <functional>

namespace quire {

// Handles SIGTERM and SIGINT on an ordinary thread, so that no code runs inside a signal handler. The first signal
// calls `on_stop`, and a second one ends the process at once. Call it in main before any other thread starts, because
// threads must inherit the blocked signals.
void OnStopSignal(std::function<void()> on_stop);

}  // namespace quire

#endif  // QUIRE_BASE_STOP_SIGNAL_H_
