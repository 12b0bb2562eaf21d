// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_TERMINAL_INTERRUPT_H_
#define QUIRE_CLIENT_TERMINAL_INTERRUPT_H_

#include <functional>
#include <memory>

#include "client/library/client.h"

namespace quire {

// Ends a running call on Ctrl-C (SIGINT), SIGTERM or, unless the caller ignores it, SIGHUP: the first signal cancels
// the call, a second one ends the process at once. While nothing is watched the first one ends the process, too. The
// next call that is watched can be cancelled again. There is one per process. Make it before any other thread starts,
// because threads inherit the blocked signals. Its own thread waits for the signals, because a signal handler may not
// call into gRPC.
class Interrupt {
 public:
  Interrupt();

  // Sets the call to cancel; nullptr means that none runs. REQUIRES: `stream` lives until the next Watch.
  void Watch(GenerateStream* stream);

  // Sets a function that the signal thread calls once, at the first signal. An empty function means that nothing runs.
  void Watch(std::function<void()> cancel);

  // The signal that cancelled what was watched last; 0 if none did.
  int signal() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // Shared with the signal thread, which outlives this object.
};

// Ends the process by `signal`, so that a shell sees that it was interrupted and stops its script as well. The shell
// shows 128 + signal.
[[noreturn]] void EndBySignal(int signal);

}  // namespace quire

#endif  // QUIRE_CLIENT_TERMINAL_INTERRUPT_H_
