// SPDX-License-Identifier: Apache-2.0

#include "serving/guarded_port.h"

#include <sys/socket.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "serving/guarded_sockets.h"

namespace quire {
namespace {

// The connections that have begun most calls may be gone already. One with fewer calls is not ended in their place.
constexpr int64_t kMinCallsOfAttacker = 100;

}  // namespace

// Declared before the lock of a mutex, it logs the lines without the lock.
struct GuardedPort::Warnings {
  ~Warnings() {
    for (const std::string& line : lines) QUIRE_LOG(kWarning) << line;
  }

  std::vector<std::string> lines;
};

GuardedPort::GuardedPort(std::string name, int64_t max_held_bytes)
    : name_(std::move(name)), max_held_bytes_(max_held_bytes), log_limiter_(1) {}

bool GuardedPort::MustWait() {
  if (num_calls_ <= kMaxAbandonedCalls) return false;
  GuardedSockets::Instance().RemoveClosed();
  const MutexLock lock(&mutex_);
  return num_abandoned_calls() > kMaxAbandonedCalls;
}

void GuardedPort::SetHeld(GuardedConnection* connection, const Held& held) {
  bool is_too_much, has_new_calls;
  {
    const MutexLock lock(&mutex_);
    if (connection->is_ended()) return;
    const Held before = sum_;
    Replace(connection, held);
    is_too_much = sum_.bytes > before.bytes && (sum_.bytes > max_held_bytes_ || held.bytes > max_held_bytes_ / 2);
    has_new_calls = sum_.calls > before.calls;
  }
  if (has_new_calls && num_calls_ > kMaxAbandonedCalls) CheckAbandonedCalls();
  if (!is_too_much) return;
  // gRPC does not say when it closes a connection, so some of them may hold nothing any more.
  GuardedSockets::Instance().RemoveClosed();
  EndGreedyConnections();
}

void GuardedPort::EndGreedyConnections() {
  Warnings warnings;
  const MutexLock lock(&mutex_);
  while (!held_.empty()) {
    const auto [connection, held] = *std::max_element(
        held_.begin(), held_.end(), [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    if (sum_.bytes <= max_held_bytes_ && held.bytes <= max_held_bytes_ / 2) return;
    End(connection,
        absl::StrCat("the calls of all connections hold about ", sum_.bytes, " bytes, and the limit is ",
                     max_held_bytes_, ", half of it for one connection; this one holds ", held.bytes),
        &warnings);
  }
}

void GuardedPort::CheckAbandonedCalls() {
  Warnings warnings;
  const MutexLock lock(&mutex_);
  if (num_abandoned_calls() <= kMaxAbandonedCalls) {
    has_too_many_abandoned_ = false;
  } else if (!has_too_many_abandoned_) {
    has_too_many_abandoned_ = true;
    for (auto& [connection, held] : held_) held.calls_before = held.calls;
  } else if (num_abandoned_calls() > kFarTooManyAbandonedCalls && !held_.empty()) {
    const auto [connection, held] = *std::max_element(held_.begin(), held_.end(), [](const auto& a, const auto& b) {
      return a.second.calls - a.second.calls_before < b.second.calls - b.second.calls_before;
    });
    if (held.calls - held.calls_before < kMinCallsOfAttacker) return;
    End(connection,
        absl::StrCat("the server has to end ", num_abandoned_calls(),
                     " calls whose clients do not wait for them, and the limit is ", kFarTooManyAbandonedCalls,
                     "; this connection has begun most"),
        &warnings);
    has_too_many_abandoned_ = false;
  }
}

void GuardedPort::Refuse(GuardedConnection* connection, absl::string_view reason) {
  Warnings warnings;
  const MutexLock lock(&mutex_);
  End(connection, reason, &warnings);
}

void GuardedPort::Forget(GuardedConnection* connection) {
  const MutexLock lock(&mutex_);
  ChargeForCalls(connection);
  Replace(connection, {});
  held_.erase(connection);
}

void GuardedPort::End(GuardedConnection* connection, absl::string_view reason, Warnings* warnings) {
  if (!connection->is_ended_.exchange(true)) {
    Count(connection->peer_, reason, warnings);  // Before the client can notice it.
    ChargeForCalls(connection);
    connection->ShutDown();
  }
  Replace(connection, {});
  held_.erase(connection);
}

void GuardedPort::ChargeForCalls(GuardedConnection* connection) {
  const int64_t num_calls = held_[connection].streams;
  if (num_calls == 0) return;
  GuardedSockets::Instance().turns()->Charge(connection->peer_, num_calls * FrameGuard::kMicrosPerLostCall);
}

void GuardedPort::Replace(GuardedConnection* connection, const Held& held) {
  Held& stored = held_[connection];
  sum_.bytes += held.bytes - stored.bytes;
  sum_.streams += held.streams - stored.streams;
  sum_.calls += held.calls - stored.calls;
  stored = {held.bytes, held.streams, held.calls, stored.calls_before};
}

void GuardedPort::Count(const std::string& peer, absl::string_view reason, Warnings* warnings) {
  ++num_ended_;
  GuardedSockets::Instance().turns()->Charge(peer, kEndedPriceUs);
  const std::optional<int64_t> num_dropped = log_limiter_.Admit(SteadyClock().NowMicros());
  if (!num_dropped) return;
  warnings->lines.push_back(
      absl::StrCat("ended a connection of ", peer.empty() ? "a unix socket" : peer, " at the port ", name_, ": ",
                   reason, *num_dropped > 0 ? absl::StrCat("; ", *num_dropped, " like it since the last line") : ""));
}

GuardedConnection::GuardedConnection(std::shared_ptr<GuardedPort> port, std::string peer, int fd)
    : port_(std::move(port)), peer_(std::move(peer)), fd_(fd) {}

GuardedConnection::~GuardedConnection() {
  // A turn that waits has this price already.
  if (!peer_.empty() && !waits_for_turn_ && budget_.DebtUs() > 0) {
    GuardedSockets::Instance().turns()->Charge(peer_, budget_.DebtUs());
  }
  port_->Forget(this);
}

size_t GuardedConnection::BytesToRead() {
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  if (peer_.empty()) return kAll;  // TakeTurn cannot wake a unix socket, whose clients have the rights for its file.
  const MutexLock lock(&mutex_);
  const size_t num_bytes = waits_for_turn_ ? 0 : budget_.BytesToRead(SteadyClock().NowMicros());
  if (num_bytes > 0 || waits_for_turn_) return num_bytes;
  TurnQueue* const turns = GuardedSockets::Instance().turns();
  if (turns->TryTake(budget_.PriceOfTurn())) {
    budget_.TakeTurn();
    return budget_.BytesToRead(SteadyClock().NowMicros());
  }
  waits_for_turn_ = true;
  turns->Push(peer_, budget_.PriceOfTurn(), [weak = weak_from_this()] {
    if (const auto connection = weak.lock()) connection->TakeTurn();
  });
  return 0;
}

void GuardedConnection::TakeTurn() {
  {
    const MutexLock lock(&mutex_);
    budget_.TakeTurn();
    waits_for_turn_ = false;
  }
  // gRPC has been told that the socket has no bytes, so it waits for more. Setting this option lets Linux report those
  // that are there. It is the value that sockets have, so it does no harm if another socket has the descriptor now.
  const int one = 1;
  setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
}

std::optional<std::string> GuardedConnection::ReceiveFromSocket(absl::string_view bytes) {
  {
    const MutexLock lock(&mutex_);
    if (!std::exchange(has_bytes_, true) && bytes[0] != FrameGuard::kPreface[0]) {
      has_tls_ = true;
      hello_.emplace();
    }
    if (hello_.has_value()) return hello_->Add(bytes);
  }
  Receive(bytes);
  return std::nullopt;
}

void GuardedConnection::Receive(absl::string_view bytes) {
  const MutexLock lock(&mutex_);
  budget_.AddBytes(bytes.size());
  const absl::Status status = guard_.Receive(bytes, SteadyClock().NowMicros());
  budget_.AddWork(guard_.TakeWork());
  if (!status.ok()) return port_->Refuse(this, status.message());
  port_->SetHeld(this, GuardedPort::HeldBy(guard_));
}

void GuardedConnection::Send(const std::function<void(FrameGuard* guard)>& send) {
  const MutexLock lock(&mutex_);
  send(&guard_);
  budget_.AddWork(guard_.TakeWork());
  port_->SetHeld(this, GuardedPort::HeldBy(guard_));
}

void GuardedConnection::AddWork(int64_t work_us) {
  const MutexLock lock(&mutex_);
  budget_.AddWork(work_us);
}

void GuardedConnection::ShutDown() {
  // A thread of gRPC may wait for this socket.
  if (fd_ >= 0) GuardedSockets::Instance().ShutDown(fd_, this);
}

}  // namespace quire
