#ifndef QUIRE_WORKER_STOP_SIGNAL_H_
#define QUIRE_WORKER_STOP_SIGNAL_H_

#include <functional>

namespace quire {

// Turns SIGTERM and SIGINT into an ordinary call on an ordinary thread, so that nothing runs inside a signal handler:
// the first one calls `on_stop`, a second one ends the process at once. Call it in main before any other thread starts:
// they inherit the blocked signals.
void OnStopSignal(std::function<void()> on_stop);

}  // namespace quire

#endif  // QUIRE_WORKER_STOP_SIGNAL_H_
