#include "client/interrupt.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <mutex>
#include <thread>

namespace quire {

struct Interrupt::State {
  std::mutex mutex;
  GenerateStream* stream = nullptr;  // Guarded by mutex.
  int signal = 0;                    // Guarded by mutex.
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
      // Under the lock, so that the stream cannot be destroyed meanwhile.
      const std::lock_guard lock(state->mutex);
      if (state->stream == nullptr) EndBySignal(signal);
      state->signal = signal;
      state->stream->Cancel();
    }
    sigwait(&signals, &signal);
    EndBySignal(signal);
  }).detach();
}

void Interrupt::Watch(GenerateStream* stream) {
  const std::lock_guard lock(state_->mutex);
  state_->stream = stream;
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
