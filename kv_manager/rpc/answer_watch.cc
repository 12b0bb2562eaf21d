// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/answer_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace quire {
namespace {

// The time between two looks at the time limits.
constexpr std::chrono::seconds kInterval{1};

// An answer that has waited for this time is old.
constexpr int64_t kOldUs = 2'000'000;

// The peer without its port, so that a client gets no more memory by opening more connections. All clients of a unix
// socket are one.
std::string AddressOf(absl::string_view peer) {
  const bool has_port = absl::StartsWith(peer, "ipv4:") || absl::StartsWith(peer, "ipv6:");
  return std::string(has_port ? peer.substr(0, peer.rfind(':')) : peer);
}

}  // namespace

AnswerWatch::AnswerWatch(int64_t max_bytes, absl::Duration timeout, const Clock* clock, bool has_thread)
    : max_bytes_(max_bytes), timeout_(timeout), clock_(clock), log_limiter_(1) {
  if (has_thread) thread_ = std::thread([this] { Run(); });
}

AnswerWatch::~AnswerWatch() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

uint64_t AnswerWatch::Begin(const std::string& peer, int64_t num_bytes, Wait wait, CancelCall cancel_call) {
  uint64_t id;
  bool must_wake;
  {
    const MutexLock lock(&mutex_);
    id = next_id_++;
    must_wake = answers_.empty();
    const int64_t now_us = clock_->NowMicros();
    const int64_t limit_us = now_us + absl::ToInt64Microseconds(timeout_);
    Answer& answer = answers_[id];
    answer = {AddressOf(peer), 0, now_us, wait == Wait::kLimited ? limit_us : kNever, std::move(cancel_call)};
    Add(&answer, num_bytes);
    must_wake |= num_bytes_ > max_bytes_;
  }
  if (must_wake) changed_.NotifyAll();
  return id;
}

void AnswerWatch::Resize(uint64_t id, int64_t num_bytes) {
  const MutexLock lock(&mutex_);
  const auto it = answers_.find(id);
  if (it == answers_.end()) return;
  Add(&it->second, num_bytes - it->second.num_bytes);
  if (num_bytes_ > max_bytes_) changed_.NotifyAll();
}

void AnswerWatch::End(uint64_t id) {
  CancelCall unused;  // Is destroyed without the lock, because it may own things of the caller.
  const MutexLock lock(&mutex_);
  if (const auto it = answers_.find(id); it != answers_.end()) unused = Remove(it);
}

void AnswerWatch::Check() {
  std::vector<CancelCall> cancelled;
  {
    const MutexLock lock(&mutex_);
    const int64_t now_us = clock_->NowMicros();
    for (auto it = answers_.begin(); it != answers_.end();) {
      const auto answer = it++;
      if (answer->second.deadline_us <= now_us) cancelled.push_back(Remove(answer));
    }
    while (num_bytes_ > max_bytes_) cancelled.push_back(Remove(FindVictim(now_us)));
  }
  if (cancelled.empty()) return;
  if (const auto num_dropped = log_limiter_.Admit(clock_->NowMicros()); num_dropped.has_value()) {
    QUIRE_LOG(kWarning) << "cancelled " << cancelled.size() << (cancelled.size() == 1 ? " call" : " calls")
                        << " of clients that do not read their answers";
  }
  for (const CancelCall& cancel : cancelled) cancel();
}

void AnswerWatch::Run() {
  while (true) {
    {
      const MutexLock lock(&mutex_);
      while (answers_.empty() && !is_stopping_) changed_.Wait(&mutex_);
      if (num_bytes_ <= max_bytes_ && !is_stopping_) changed_.WaitFor(&mutex_, kInterval);
      if (is_stopping_) return;
    }
    Check();
  }
}

AnswerWatch::Answers::iterator AnswerWatch::FindVictim(int64_t now_us) {
  // A client that reads its answers has none that is old, however many addresses an attacker has.
  if (answers_.begin()->second.begin_us + kOldUs <= now_us) return answers_.begin();
  const auto most = std::max_element(address_bytes_.begin(), address_bytes_.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return std::find_if(answers_.begin(), answers_.end(),
                      [&](const auto& entry) { return entry.second.address == most->first; });
}

void AnswerWatch::Add(Answer* answer, int64_t num_bytes) {
  answer->num_bytes += num_bytes;
  num_bytes_ += num_bytes;
  int64_t& of_address = address_bytes_[answer->address];
  of_address += num_bytes;
  if (of_address == 0) address_bytes_.erase(answer->address);
}

AnswerWatch::CancelCall AnswerWatch::Remove(Answers::iterator answer) {
  CancelCall cancel_call = std::move(answer->second.cancel_call);
  Add(&answer->second, -answer->second.num_bytes);
  answers_.erase(answer);
  return cancel_call;
}

}  // namespace quire
