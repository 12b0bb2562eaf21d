// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/receive_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"

namespace quire {
namespace {

// Number of checks without messages for which the thread stays awake, so that it need not be woken for each message.
constexpr int kIdleChecks = 50;
constexpr int64_t kRetryDelayMs = 1000;
// Window updates, settings and parts of messages that were dropped.
constexpr int64_t kSlackBytes = int64_t{1} << 20;

absl::Status TooMuch(std::string message, const char* limit_name, int64_t limit) {
  return WithReason(absl::ResourceExhaustedError(std::move(message)), "RECEIVING_TOO_MUCH",
                    {{limit_name, absl::StrCat(limit)}});
}

absl::Status TryLater(const absl::Status& status) {
  return WithRetryDelay(status, kRetryDelayMs);
}

// The most bytes that a message may need. A sixteenth is for the frames of HTTP/2 and TLS.
int64_t WithFrames(int64_t message_bytes) {
  return message_bytes / 16 * 17;
}

}  // namespace

ReceiveWatch::ReceiveWatch(const ReceiveLimits& limits, const Clock* clock, bool has_thread)
    : limits_(limits), clock_(clock), log_limiter_(1) {
  if (has_thread) thread_ = std::thread([this] { Run(); });
}

ReceiveWatch::~ReceiveWatch() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void ReceiveWatch::CountBytesWith(ByteCounter counter) {
  const MutexLock lock(&mutex_);
  counter_ = std::move(counter);
}

uint64_t ReceiveWatch::Begin(const std::string& peer, Wait wait, EndCall end_call) {
  uint64_t id;
  bool must_wake;
  {
    const MutexLock lock(&mutex_);
    id = next_id_++;
    Connection& connection = connections_[peer];
    const int64_t now_us = clock_->NowMicros();
    if (connection.num_messages++ == 0) {
      connection.received = Received(peer);
      connection.moved_at_us = now_us;
    }
    messages_.emplace_hint(messages_.end(), id,
                           Message{peer, wait, now_us, connection.unfinished, std::move(end_call)});
    if (wait == Wait::kLimited) {
      ++connection.num_limited;
      ++num_limited_;
    }
    must_wake = std::exchange(is_asleep_, false);
  }
  if (must_wake) changed_.NotifyAll();
  return id;
}

bool ReceiveWatch::End(uint64_t id, std::optional<int64_t> num_bytes) {
  EndCall unused;  // Is destroyed without the lock, because it may own things of the caller.
  const MutexLock lock(&mutex_);
  const auto it = messages_.find(id);
  if (it == messages_.end()) return false;
  connections_[it->second.peer].arrived += num_bytes.value_or(0) + kBytesPerMessage;
  if (!num_bytes.has_value()) Forgive(it->second, clock_->NowMicros());
  std::swap(unused, it->second.end_call);
  Remove(id);
  return true;
}

void ReceiveWatch::Remove(uint64_t id) {
  const auto it = messages_.find(id);
  const auto connection = connections_.find(it->second.peer);
  if (it->second.wait == Wait::kLimited) {
    --connection->second.num_limited;
    --num_limited_;
  }
  if (--connection->second.num_messages == 0) connections_.erase(connection);
  messages_.erase(it);
}

std::optional<int64_t> ReceiveWatch::Received(const std::string& peer) const {
  return counter_ == nullptr ? std::nullopt : counter_(peer);
}

void ReceiveWatch::Check() {
  std::vector<Ended> ended;
  {
    const MutexLock lock(&mutex_);
    const int64_t now_us = clock_->NowMicros();
    CountBytes(now_us);
    EndLateMessages(now_us, &ended);
    EndGreedyConnections(now_us, &ended);
    EndWhileTooMuch(now_us, &ended);
    EndWhileTooMany(now_us, &ended);
  }
  if (ended.empty()) return;
  if (const auto num_dropped = log_limiter_.Admit(clock_->NowMicros()); num_dropped.has_value()) {
    QUIRE_LOG(kWarning) << "ended " << ended.size() << (ended.size() == 1 ? " call" : " calls")
                        << " before the request had arrived: " << ended.front().status.message()
                        << (*num_dropped > 0 ? absl::StrCat("; ", *num_dropped, " lines like it since the last one")
                                             : "");
  }
  for (const Ended& call : ended) call.end_call(call.status);
}

void ReceiveWatch::CountBytes(int64_t now_us) {
  is_quiet_ = num_limited_ == 0;
  for (auto& [peer, connection] : connections_) {
    CountBytesOf(peer, &connection, now_us);
    if (connection.moved_at_us == now_us) is_quiet_ = false;
    // The estimate is a little wrong for each message. An idle connection has nothing unfinished, so the rest is error.
    const bool is_idle = now_us - connection.moved_at_us >= absl::ToInt64Microseconds(limits_.timeout);
    if (is_idle && connection.num_limited == 0 && connection.unfinished < limits_.max_message_bytes) {
      connection.unfinished = 0;
    }
  }
}

void ReceiveWatch::CountBytesOf(const std::string& peer, Connection* connection, int64_t now_us) {
  const std::optional<int64_t> received = Received(peer);
  if (received.has_value() && connection->received.has_value()) {
    const int64_t added = *received - *connection->received;
    if (added > 0) connection->moved_at_us = now_us;
    connection->unfinished = std::max<int64_t>(connection->unfinished + added - connection->arrived, 0);
  }
  connection->received = received;
  connection->arrived = 0;
}

void ReceiveWatch::Forgive(const Message& message, int64_t now_us) {
  Connection& connection = connections_[message.peer];
  CountBytesOf(message.peer, &connection, now_us);
  const int64_t grown = std::max<int64_t>(connection.unfinished - message.unfinished, 0);
  connection.unfinished -= std::min(grown, WithFrames(limits_.max_message_bytes) + kSlackBytes);
}

void ReceiveWatch::EndLateMessages(int64_t now_us, std::vector<Ended>* ended) {
  const int64_t timeout_us = absl::ToInt64Microseconds(limits_.timeout);
  std::vector<uint64_t> late;
  for (const auto& [id, message] : messages_) {
    if (now_us - message.start_us < timeout_us) break;
    if (message.wait == Wait::kLimited) late.push_back(id);
  }
  const absl::Status status = WithReason(
      absl::DeadlineExceededError(absl::StrCat("the request has not arrived completely within ",
                                               absl::FormatDuration(limits_.timeout), " (--receive-timeout)")),
      "RECEIVE_TIMEOUT", {{"receive_timeout_ms", absl::StrCat(absl::ToInt64Milliseconds(limits_.timeout))}});
  for (const uint64_t id : late) {
    Message& message = messages_.at(id);
    Forgive(message, now_us);
    ended->push_back({std::move(message.end_call), status});
    Remove(id);
  }
}

void ReceiveWatch::EndGreedyConnections(int64_t now_us, std::vector<Ended>* ended) {
  struct Greedy {
    std::string peer;
    absl::Status status;
  };
  std::vector<Greedy> greedy;
  for (auto& [peer, connection] : connections_) {
    const int64_t of_messages = connection.num_messages * WithFrames(limits_.max_message_bytes) + kSlackBytes;
    const bool is_beyond = connection.unfinished > std::min(of_messages, limits_.max_connection_bytes);
    // Bytes that arrived just now may belong to messages that gRPC is about to hand over, so one check is not enough.
    if (!std::exchange(connection.is_beyond, is_beyond) || !is_beyond) continue;
    if (connection.unfinished > limits_.max_connection_bytes) {
      const absl::Status status =
          TooMuch(absl::StrCat("the connection has sent ", connection.unfinished,
                               " bytes of unfinished messages, and the limit is ", limits_.max_connection_bytes,
                               " bytes for a connection (half of --max-receiving-bytes)"),
                  "max_connection_bytes", limits_.max_connection_bytes);
      greedy.push_back({peer, TryLater(status)});
    } else {
      greedy.push_back(
          {peer,
           TooMuch(absl::StrCat(
                       "the connection has sent ", connection.unfinished, " bytes for ", connection.num_messages,
                       connection.num_messages == 1 ? " unfinished message" : " unfinished messages",
                       ", and the limit is ", limits_.max_message_bytes, " bytes for a message (--max-message-bytes)"),
                   "max_message_bytes", limits_.max_message_bytes)});
    }
  }
  for (const Greedy& connection : greedy) EndCallsOf(connection.peer, now_us, connection.status, ended);
}

void ReceiveWatch::EndWhileTooMuch(int64_t now_us, std::vector<Ended>* ended) {
  const auto sum = [this]() QUIRE_REQUIRES(mutex_) {
    int64_t bytes = 0;
    for (const auto& [peer, connection] : connections_) bytes += connection.unfinished;
    return bytes;
  };
  const int64_t bytes = sum();
  while (sum() > limits_.max_bytes) {
    const auto most = std::max_element(connections_.begin(), connections_.end(), [](const auto& a, const auto& b) {
      return a.second.unfinished < b.second.unfinished;
    });
    const absl::Status status =
        TooMuch(absl::StrCat("all clients have sent ", bytes, " bytes of unfinished messages, and the limit is ",
                             limits_.max_bytes, " (--max-receiving-bytes); this connection has sent most"),
                "max_receiving_bytes", limits_.max_bytes);
    EndCallsOf(std::string(most->first), now_us, TryLater(status), ended);
  }
}

void ReceiveWatch::EndWhileTooMany(int64_t now_us, std::vector<Ended>* ended) {
  while (num_limited_ > limits_.max_messages) {
    const auto most = std::max_element(connections_.begin(), connections_.end(), [](const auto& a, const auto& b) {
      return a.second.num_limited < b.second.num_limited;
    });
    const absl::Status status =
        TooMuch(absl::StrCat(num_limited_, " messages have not arrived completely, and the limit is ",
                             limits_.max_messages, "; this connection has begun most of them"),
                "max_unfinished_messages", static_cast<int64_t>(limits_.max_messages));
    EndCallsOf(std::string(most->first), now_us, TryLater(status), ended);
  }
}

void ReceiveWatch::EndCallsOf(const std::string& peer, int64_t now_us, const absl::Status& status,
                              std::vector<Ended>* ended) {
  const int64_t interval_us = absl::ToInt64Microseconds(kInterval);
  Connection& connection = connections_[peer];
  const Wait wait = connection.num_limited > 0 ? Wait::kLimited : Wait::kUnlimited;
  connection.unfinished = 0;
  std::vector<uint64_t> all, old;
  for (const auto& [id, message] : messages_) {
    if (message.peer != peer || message.wait != wait) continue;
    all.push_back(id);
    if (now_us - message.start_us > interval_us) old.push_back(id);
  }
  for (const uint64_t id : old.empty() ? all : old) {
    ended->push_back({std::move(messages_.at(id).end_call), status});
    Remove(id);
  }
}

void ReceiveWatch::Run() {
  int num_idle_checks = 0;
  while (true) {
    {
      const MutexLock lock(&mutex_);
      if (is_stopping_) return;
      num_idle_checks = messages_.empty() ? num_idle_checks + 1 : 0;
      if (num_idle_checks > kIdleChecks) {
        is_asleep_ = true;
        while (is_asleep_ && !is_stopping_) changed_.Wait(&mutex_);
        num_idle_checks = 0;
      }
      if (!is_stopping_) changed_.WaitFor(&mutex_, absl::ToChronoMicroseconds(is_quiet_ ? kQuietInterval : kInterval));
    }
    Check();
  }
}

}  // namespace quire
