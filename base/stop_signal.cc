// SPDX-License-Identifier: Apache-2.0

#include "base/stop_signal.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <utility>

namespace quire {

void OnStopSignal(std::function<void()> on_stop) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, on_stop = std::move(on_stop)] {
    int signal = 0;
    sigwait(&signals, &signal);
    // From here on, the signals have their default action on this thread.
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    on_stop();
    while (true) pause();
  }).detach();
}

}  // namespace quire
