#ifndef QUIRE_CLIENT_INTERRUPT_H_
#define QUIRE_CLIENT_INTERRUPT_H_

#include <functional>
#include <memory>

#include "client/client.h"

namespace quire {

// Ctrl-C (SIGINT) and SIGTERM end what runs in order: the first one cancels it, a second one ends the process at once.
// While nothing is watched the first one does that, too. One per process, made before any other thread
// starts: threads inherit the blocked signals, and a thread of its own takes them, because a signal handler may not
// call into gRPC.
class Interrupt {
 public:
  Interrupt();

  // The call to cancel; nullptr: none runs. REQUIRES: it lives until the next Watch.
  void Watch(GenerateStream* stream);

  // The same for what runs otherwise: called once, by another thread, at the first signal. nullptr: nothing runs.
  void Watch(std::function<void()> cancel);

  // The signal that cancelled something; 0: none did.
  int signal() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // Shared with the thread, which outlives this.
};

// Ends the process by `signal`, so that a shell sees that it was interrupted and stops its script as well. The shell
// shows 128 + signal.
[[noreturn]] void EndBySignal(int signal);

}  // namespace quire

#endif  // QUIRE_CLIENT_INTERRUPT_H_
