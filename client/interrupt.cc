#include "client/interrupt.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <mutex>
#include <thread>
#include <utility>

namespace quire {

struct Interrupt::State {
  std::mutex mutex;
  std::function<void()> cancel;  // Guarded by mutex.
  int signal = 0;                // Guarded by mutex.
};

Interrupt::Interrupt() : state_(std::make_shared<State>()) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, state = state_] {
    int signal = 0;
    sigwait(&signals, &signal);
    {
      // Under the lock, so that what it cancels cannot be destroyed meanwhile.
      const std::lock_guard lock(state->mutex);
      if (!state->cancel) EndBySignal(signal);
      state->signal = signal;
      state->cancel();
    }
    sigwait(&signals, &signal);
    EndBySignal(signal);
  }).detach();
}

void Interrupt::Watch(GenerateStream* stream) {
  Watch(stream == nullptr ? std::function<void()>() : [stream] { stream->Cancel(); });
}

void Interrupt::Watch(std::function<void()> cancel) {
  const std::lock_guard lock(state_->mutex);
  state_->cancel = std::move(cancel);
}

int Interrupt::signal() const {
  const std::lock_guard lock(state_->mutex);
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
