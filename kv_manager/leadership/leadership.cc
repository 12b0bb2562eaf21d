// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/leadership/leadership.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace quire {

Leadership::Leadership(absl::Duration lease, std::unique_ptr<LeaseStore> store, Hooks hooks, const Clock* clock)
    : lease_(lease), store_(std::move(store)), hooks_(std::move(hooks)), election_(lease, store_.get(), clock) {}

Leadership::~Leadership() {
  Stop();
}

void Leadership::Start() {
  {
    const MutexLock lock(&mutex_);
    is_settled_ = false;
  }
  const MutexLock lock(&join_mutex_);
  thread_ = std::thread([this] { Run(); });
}

bool Leadership::StopWaiting() {
  const MutexLock lock(&mutex_);
  waits_no_longer_ = true;
  changed_.NotifyAll();
  while (!is_settled_) changed_.Wait(&mutex_);
  return status().is_leader;
}

void Leadership::Stop() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  changed_.NotifyAll();
  const MutexLock lock(&join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void Leadership::Run() {
  Elect();
  Settle();
  if (election_.state() == Election::State::kOver) return;
  const bool was_leader = election_.state() == Election::State::kLeading;
  // This closes the fence first, because another manager may lead as soon as the lease is free.
  election_.Resign();
  const absl::Status released = store_->Release(lease_ / 3);
  if (!released.ok()) {
    QUIRE_LOG(kWarning) << "cannot give the lease back, so it ends by itself: " << released.message();
  } else if (was_leader) {
    QUIRE_LOG(kInfo) << "gave the lease back";
  }
}

void Leadership::Elect() {
  while (true) {
    const Election::State before = election_.state();
    const absl::Duration wait = election_.Round();
    const Election::State now = election_.state();
    if (now == Election::State::kOver) return hooks_.on_lost(election_.end());
    if (now != before) {
      hooks_.on_elected(election_.status().term);
      Settle();
    }
    if (!WaitFor(wait)) return;
  }
}

void Leadership::Settle() {
  const MutexLock lock(&mutex_);
  is_settled_ = true;
  changed_.NotifyAll();
}

bool Leadership::WaitFor(absl::Duration time) {
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(time);
  const MutexLock lock(&mutex_);
  const auto is_over = [this]() QUIRE_REQUIRES(mutex_) { return is_stopping_ || (waits_no_longer_ && !is_settled_); };
  while (!is_over()) {
    if (!changed_.WaitUntil(&mutex_, end)) break;
  }
  return !is_over();
}

}  // namespace quire
