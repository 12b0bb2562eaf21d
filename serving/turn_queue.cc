// SPDX-License-Identifier: Apache-2.0

#include "serving/turn_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace quire {

TurnQueue::TurnQueue(int num_lanes) : num_lanes_(num_lanes), thread_([this] { Run(); }) {}

TurnQueue::~TurnQueue() {
  {
    const MutexLock lock(&mutex_);
    is_ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

bool TurnQueue::TryTake(int64_t price_us) {
  const int64_t now_us = SteadyClock().NowMicros();
  const MutexLock lock(&mutex_);
  if (num_waiting_ > 0 || next_us_ > now_us) return false;
  addresses_.clear();  // There is no queue, so nobody has taken anything from others.
  paid_us_ = 0;
  Wait(price_us, now_us);
  return true;
}

void TurnQueue::Push(const std::string& address, int64_t price_us, std::function<void()> turn) {
  const int64_t now_us = SteadyClock().NowMicros();
  const MutexLock lock(&mutex_);
  Find(address).turns.push_back({price_us, std::move(turn)});
  if (num_waiting_++ == 0) waiting_since_us_ = now_us;
  changed_.NotifyAll();
}

void TurnQueue::Charge(const std::string& address, int64_t price_us) {
  const int64_t now_us = SteadyClock().NowMicros();
  const MutexLock lock(&mutex_);
  Address& debtor = Find(address);
  debtor.paid_us = std::min(debtor.paid_us + price_us, std::max(debtor.paid_us, paid_us_ + kMaxDebtUs));
  next_us_ = std::max(next_us_, now_us);
  Wait(price_us, now_us);
}

TurnQueue::Address& TurnQueue::Find(const std::string& name) {
  Address& address = addresses_[name];
  if (address.turns.empty()) address.paid_us = std::max(address.paid_us, paid_us_);
  return address;
}

TurnQueue::Turn TurnQueue::Pop() {
  const auto next = std::min_element(addresses_.begin(), addresses_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.turns.empty(), a.second.paid_us) < std::pair(b.second.turns.empty(), b.second.paid_us);
  });
  Address& address = next->second;
  Turn turn = std::move(address.turns.front());
  address.turns.pop_front();
  --num_waiting_;
  const auto num_others = std::count_if(addresses_.begin(), addresses_.end(),
                                        [](const auto& entry) { return !entry.second.turns.empty(); });
  paid_us_ = std::max(paid_us_, address.paid_us) + turn.price_us / (num_others + 1);
  address.paid_us += turn.price_us;
  absl::erase_if(addresses_, [paid_us = paid_us_](const auto& entry) {
    return entry.second.turns.empty() && entry.second.paid_us <= paid_us;
  });
  return turn;
}

void TurnQueue::Wait(int64_t price_us, int64_t now_us) {
  const int64_t since_us = num_waiting_ > 0 ? waiting_since_us_ : now_us;
  next_us_ = std::min(std::max(next_us_, now_us - kBurstUs) + price_us / num_lanes_, since_us + kMaxWaitUs);
}

void TurnQueue::Run() {
  while (true) {
    const Turn turn = Next();
    if (turn.run == nullptr) return;
    turn.run();
  }
}

TurnQueue::Turn TurnQueue::Next() {
  const MutexLock lock(&mutex_);
  while (!is_ending_) {
    const int64_t now_us = SteadyClock().NowMicros();
    if (num_waiting_ == 0) {
      changed_.Wait(&mutex_);
    } else if (next_us_ > now_us) {
      changed_.WaitFor(&mutex_, std::chrono::microseconds(next_us_ - now_us));
    } else {
      Turn turn = Pop();
      waiting_since_us_ = now_us;
      Wait(turn.price_us, now_us);
      return turn;
    }
  }
  return {};
}

}  // namespace quire
