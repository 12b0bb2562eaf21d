#include "kv_manager/requests/resumable_requests.h"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {
namespace {

constexpr int64_t kTokenLifetimeSec = 24 * 3600;

}  // namespace

class ResumableRequests::Keeper : public StreamKeeper {
 public:
  Keeper(ResumableRequests* requests, Key key, RequestId id, uint64_t nonce)
      : requests_(requests), key_(std::move(key)), id_(id), nonce_(nonce) {}

  std::string MakeResumeToken() override { return requests_->MakeToken(key_, nonce_); }
  bool Grow(int64_t num_bytes) override { return requests_->Grow(key_, id_, num_bytes); }
  void OnForgotten() override { requests_->OnForgotten(key_, id_); }
  void OnAttached() override { requests_->OnAttached(key_, id_); }
  bool OnDetached() override { return requests_->OnDetached(key_, id_); }
  void OnEnded(bool is_ok) override { requests_->OnEnded(key_, id_, is_ok); }

 private:
  ResumableRequests* const requests_;
  const Key key_;
  const RequestId id_;
  const uint64_t nonce_;
};

ResumableRequests::ResumableRequests(const DetachOptions& options, const Clock* clock)
    : options_(options),
      clock_(clock),
      key_(options.resume_key.has_value() ? *options.resume_key : SealKey::Random()),
      thread_([this] { Run(); }) {}

ResumableRequests::~ResumableRequests() {
  Stop();
}

void ResumableRequests::Stop() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  std::vector<Entry> removed;
  {
    const MutexLock lock(&mutex_);
    while (!entries_.empty()) removed.push_back(Take(entries_.begin()));
  }
  for (const Entry& entry : removed) entry.stream->Drop(absl::UnavailableError("the manager has stopped"));
}

std::shared_ptr<StreamKeeper> ResumableRequests::NewKeeper(const Identity& identity, RequestId id, uint64_t nonce) {
  return std::make_shared<Keeper>(this, Key(identity.owner, identity.name), id, nonce);
}

absl::StatusOr<std::shared_ptr<TokenStream>> ResumableRequests::SameOrNull(const Identity& identity) {
  const auto it = entries_.find(Key(identity.owner, identity.name));
  if (it == entries_.end()) return nullptr;
  Entry& entry = it->second;
  if (entry.has_failed) return nullptr;
  if (entry.digest != identity.digest) {
    if (entry.has_ended) return nullptr;
    return WithReason(absl::AlreadyExistsError(absl::StrCat("request_id: a request ", Quoted(identity.name),
                                                            " with other fields is running")),
                      "REQUEST_RUNNING");
  }
  // The call has the grace to take the stream.
  if (entry.expires_us != kNever) {
    SetExpiry(it->first, &entry, clock_->NowMicros() + absl::ToInt64Microseconds(options_.grace));
  }
  return entry.stream;
}

absl::StatusOr<std::shared_ptr<TokenStream>> ResumableRequests::FindSame(const Identity& identity) {
  const MutexLock lock(&mutex_);
  return SameOrNull(identity);
}

absl::StatusOr<std::shared_ptr<TokenStream>> ResumableRequests::Add(const Identity& identity, uint64_t nonce,
                                                                    std::shared_ptr<TokenStream> stream,
                                                                    RequestRegistry* registry) {
  std::optional<Entry> old;
  {
    const MutexLock lock(&mutex_);
    QUIRE_ASSIGN_OR_RETURN(std::shared_ptr<TokenStream> same, SameOrNull(identity));
    if (same != nullptr) return same;
    QUIRE_ASSIGN_OR_RETURN(auto registration,
                           registry->Register(identity.owner, identity.name, stream, identity.tenant));
    registration->StopWaiting();  // Each call has a registration of its own for this.
    const Key key(identity.owner, identity.name);
    if (const auto it = entries_.find(key); it != entries_.end()) old = Take(it);
    entries_.emplace(key, Entry{.id = stream->id(),
                                .nonce = nonce,
                                .tenant = identity.tenant,
                                .digest = identity.digest,
                                .stream = stream,
                                .registration = std::move(registration)});
  }
  if (old.has_value()) old->stream->Drop(UnknownRequestError());
  return stream;
}

absl::Status ResumableRequests::Restore(const Identity& identity, uint64_t nonce,
                                        const std::shared_ptr<TokenStream>& stream, RequestRegistry* registry) {
  QUIRE_ASSIGN_OR_RETURN(const std::shared_ptr<TokenStream> kept, Add(identity, nonce, stream, registry));
  if (kept != stream) return absl::AlreadyExistsError("the request runs already");
  if (!OnDetached(Key(identity.owner, identity.name), stream->id())) {
    return absl::ResourceExhaustedError("too many requests have no client (--max-detached-requests)");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<TokenStream>> ResumableRequests::Find(const std::string& resume_token,
                                                                     const std::string& owner) {
  QUIRE_ASSIGN_OR_RETURN(const ResumeToken token,
                         DecodeResumeToken(resume_token, key_, owner, absl::ToUnixSeconds(absl::Now())));
  const MutexLock lock(&mutex_);
  const auto it = entries_.find(Key(token.owner, token.name));
  if (it == entries_.end() || it->second.nonce != token.nonce) return UnknownRequestError();
  Entry& entry = it->second;
  if (entry.expires_us != kNever) {
    SetExpiry(it->first, &entry, clock_->NowMicros() + absl::ToInt64Microseconds(options_.grace));
  }
  return entry.stream;
}

void ResumableRequests::Remove(RequestId id) {
  Entry removed;
  const MutexLock lock(&mutex_);
  const auto it =
      std::find_if(entries_.begin(), entries_.end(), [id](const auto& entry) { return entry.second.id == id; });
  if (it != entries_.end()) removed = Take(it);
}

std::string ResumableRequests::MakeToken(const Key& key, uint64_t nonce) const {
  return EncodeResumeToken({.owner = key.first,
                            .name = key.second,
                            .nonce = nonce,
                            .expires_unix_sec = absl::ToUnixSeconds(absl::Now()) + kTokenLifetimeSec},
                           key_);
}

ResumableRequests::Entry* ResumableRequests::FindEntry(const Key& key, RequestId id) {
  const auto it = entries_.find(key);
  return it == entries_.end() || it->second.id != id ? nullptr : &it->second;
}

void ResumableRequests::SetExpiry(const Key& key, Entry* entry, int64_t expires_us) {
  if (entry->expires_us != kNever) expiries_.erase({entry->expires_us, key});
  entry->expires_us = expires_us;
  if (expires_us == kNever) return;
  expiries_.insert({expires_us, key});
  if (expiries_.begin()->second == key) changed_.NotifyAll();
}

bool ResumableRequests::Grow(const Key& key, RequestId id, int64_t num_bytes) {
  const MutexLock lock(&mutex_);
  Entry* const entry = FindEntry(key, id);
  if (entry == nullptr) return true;  // The stream is about to be dropped.
  if (replay_bytes_ + num_bytes > options_.max_replay_bytes) return false;
  replay_bytes_ += num_bytes;
  entry->num_bytes += num_bytes;
  return true;
}

void ResumableRequests::OnForgotten(const Key& key, RequestId id) {
  Entry removed;
  const MutexLock lock(&mutex_);
  if (FindEntry(key, id) == nullptr) return;
  ++counts_.forgotten;
  removed = Take(entries_.find(key));
}

void ResumableRequests::OnAttached(const Key& key, RequestId id) {
  const MutexLock lock(&mutex_);
  Entry* const entry = FindEntry(key, id);
  if (entry == nullptr) return;
  ++counts_.resumed;
  entry->is_attached = true;
  SetExpiry(key, entry, kNever);
}

bool ResumableRequests::OnDetached(const Key& key, RequestId id) {
  std::vector<Entry> removed;
  bool is_kept;
  {
    const MutexLock lock(&mutex_);
    Entry* const entry = FindEntry(key, id);
    if (entry == nullptr) return false;
    entry->is_attached = false;
    SetExpiry(key, entry, clock_->NowMicros() + absl::ToInt64Microseconds(options_.grace));
    MakeRoom(&removed);
    is_kept = FindEntry(key, id) != nullptr;
  }
  for (const Entry& entry : removed) {
    if (entry.id != id) entry.stream->Drop(UnknownRequestError());
  }
  return is_kept;
}

void ResumableRequests::OnEnded(const Key& key, RequestId id, bool is_ok) {
  std::vector<Entry> removed;
  std::unique_ptr<RequestRegistry::Registration> registration;  // Ends after the lock.
  {
    const MutexLock lock(&mutex_);
    Entry* const entry = FindEntry(key, id);
    if (entry == nullptr) return;
    registration = std::move(entry->registration);
    entry->is_attached = false;
    entry->has_ended = true;
    entry->has_failed = !is_ok;
    SetExpiry(key, entry, clock_->NowMicros() + absl::ToInt64Microseconds(options_.grace));
    MakeRoom(&removed);
  }
  for (const Entry& entry : removed) entry.stream->Drop(UnknownRequestError());
}

void ResumableRequests::MakeRoom(std::vector<Entry>* removed) {
  while (num_waiting() > options_.max_detached) {
    const auto victim = FindVictim();
    if (!victim->second.has_ended) ++counts_.displaced;
    removed->push_back(Take(victim));
  }
}

ResumableRequests::Entries::iterator ResumableRequests::FindVictim() {
  absl::flat_hash_map<std::string, size_t> num_by_tenant;
  for (const auto& [expires_us, key] : expiries_) ++num_by_tenant[entries_.find(key)->second.tenant];
  const auto rank = [&](const Entry& entry) {
    return std::tuple(entry.has_ended, num_by_tenant[entry.tenant], -entry.expires_us);
  };
  auto victim = entries_.end();
  for (const auto& [expires_us, key] : expiries_) {
    const auto it = entries_.find(key);
    if (victim == entries_.end() || rank(it->second) > rank(victim->second)) victim = it;
  }
  return victim;
}

ResumableRequests::Entry ResumableRequests::Take(Entries::iterator it) {
  SetExpiry(it->first, &it->second, kNever);
  replay_bytes_ -= it->second.num_bytes;
  Entry entry = std::move(it->second);
  entries_.erase(it);
  return entry;
}

absl::flat_hash_set<RequestId> ResumableRequests::Detached() const {
  absl::flat_hash_set<RequestId> detached;
  const MutexLock lock(&mutex_);
  for (const auto& [key, entry] : entries_) {
    if (!entry.is_attached && !entry.has_ended) detached.insert(entry.id);
  }
  return detached;
}

DetachedCounts ResumableRequests::counts() const {
  const MutexLock lock(&mutex_);
  DetachedCounts counts = counts_;
  for (const auto& [key, entry] : entries_) {
    counts.ended += entry.has_ended;
    counts.running += !entry.is_attached && !entry.has_ended;
  }
  counts.replay_bytes = replay_bytes_;
  return counts;
}

void ResumableRequests::Check() {
  std::vector<Entry> removed;
  {
    const MutexLock lock(&mutex_);
    const int64_t now_us = clock_->NowMicros();
    while (!expiries_.empty() && expiries_.begin()->first <= now_us) {
      const auto it = entries_.find(expiries_.begin()->second);
      if (!it->second.has_ended) ++counts_.expired;
      removed.push_back(Take(it));
    }
  }
  for (const Entry& entry : removed) {
    entry.stream->Drop(absl::CancelledError("the client has left and did not come back in time (--detach-grace)"));
  }
}

void ResumableRequests::Run() {
  while (true) {
    {
      const MutexLock lock(&mutex_);
      if (is_stopping_) return;
      if (expiries_.empty()) {
        changed_.Wait(&mutex_);
      } else {
        const int64_t left_us = expiries_.begin()->first - clock_->NowMicros();
        if (left_us > 0) changed_.WaitFor(&mutex_, std::chrono::microseconds(left_us));
      }
      if (is_stopping_) return;
    }
    Check();
  }
}

}  // namespace quire
