// SPDX-License-Identifier: Apache-2.0

#include "client/terminal/interrupt.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace quire {

struct Interrupt::State {
  Mutex mutex;
  std::function<void()> cancel QUIRE_GUARDED_BY(mutex);
  int signal QUIRE_GUARDED_BY(mutex) = 0;  // The one that has called `cancel`.
};

Interrupt::Interrupt() : state_(std::make_shared<State>()) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // The terminal has closed, unless nohup has set that this does not matter.
  struct sigaction hangup;
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, state = state_] {
    while (true) {
      int signal = 0;
      sigwait(&signals, &signal);
      // The lock is held while `cancel` runs, so that Watch cannot return and its caller cannot destroy the stream.
      const MutexLock lock(&state->mutex);
      if (!state->cancel || state->signal != 0) EndBySignal(signal);
      state->signal = signal;
      state->cancel();
    }
  }).detach();
}

void Interrupt::Watch(GenerateStream* stream) {
  Watch(stream == nullptr ? std::function<void()>() : [stream] { stream->Cancel(); });
}

void Interrupt::Watch(std::function<void()> cancel) {
  const MutexLock lock(&state_->mutex);
  if (cancel) state_->signal = 0;
  state_->cancel = std::move(cancel);
}

int Interrupt::signal() const {
  const MutexLock lock(&state_->mutex);
  return state_->signal;
}

void EndBySignal(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  raise(signal);
  _exit(128 + signal);
}

}  // namespace quire
