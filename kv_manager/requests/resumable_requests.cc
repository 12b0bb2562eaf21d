// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/resumable_requests.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {
namespace {

constexpr int64_t kTokenLifetimeSec = 24 * 3600;
// 1/8 of the memory is reserved for tenants below their equal share.
constexpr int64_t kReservedPart = 8;
constexpr int64_t kRestoringRetryMs = 100;
// A record grows with every token. It gets memory in pieces of this size, as long as there is enough for all, so that
// most tokens need neither the lock nor the entry of their request.
constexpr int64_t kGrowthBytes = 2048;

}  // namespace

absl::Status RestoringError() {
  return WithRetryDelay(
      WithReason(absl::UnavailableError("it is not known yet whether a worker has the request: the manager has just "
                                        "started, or it stops and the next one will know"),
                 "RESTORING"),
      kRestoringRetryMs);
}

class ResumableRequests::Keeper : public StreamKeeper {
 public:
  Keeper(ResumableRequests* requests, Key key, RequestId id, uint64_t nonce)
      : requests_(requests), key_(std::move(key)), id_(id), nonce_(nonce) {}

  std::string MakeResumeToken() override { return requests_->MakeToken(key_, nonce_); }
  bool Grow(int64_t num_bytes) override {
    if (num_bytes > room_) {
      const int64_t more = requests_->Grow(key_, id_, num_bytes - room_);
      if (more == 0) return false;
      room_ += more;
    }
    room_ -= num_bytes;
    return true;
  }
  void OnForgotten() override { requests_->OnForgotten(key_, id_); }
  void OnAttached() override { requests_->OnAttached(key_, id_); }
  bool OnDetached() override { return requests_->OnDetached(key_, id_); }
  void OnEnded(bool is_ok) override { requests_->OnEnded(key_, id_, is_ok); }
  void OnClosed() override { requests_->OnClosed(key_, id_); }

 private:
  ResumableRequests* const requests_;
  const Key key_;
  const RequestId id_;
  const uint64_t nonce_;
  int64_t room_ = 0;  // The memory that the record has and does not use yet.
};

void ResumableRequests::Waiting::Add(const std::string& tenant, int64_t expires_us, const Key& key) {
  auto& keys = by_tenant_[tenant];
  if (!keys.empty()) by_count_.erase({keys.size(), tenant});
  keys.insert({expires_us, key});
  by_count_.insert({keys.size(), tenant});
  ++size_;
}

void ResumableRequests::Waiting::Remove(const std::string& tenant, int64_t expires_us, const Key& key) {
  const auto it = by_tenant_.find(tenant);
  by_count_.erase({it->second.size(), tenant});
  it->second.erase({expires_us, key});
  --size_;
  if (it->second.empty()) {
    by_tenant_.erase(it);
  } else {
    by_count_.insert({it->second.size(), tenant});
  }
}

ResumableRequests::ResumableRequests(const DetachOptions& options, const Clock* clock)
    : options_(options),
      clock_(clock),
      key_((options.resume_key.has_value() ? *options.resume_key : SealKey::Random()).For("resume token")),
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
  if (entry.has_failed || entry.stream->is_closed()) return nullptr;
  const absl::StatusOr<bool> is_same = IsSame(entry, identity);
  if (!is_same.ok()) return nullptr;
  if (!*is_same) {
    if (entry.has_ended) return nullptr;
    return WithReason(absl::AlreadyExistsError(absl::StrCat("request_id: a request ", Quoted(identity.name),
                                                            " with other fields is running")),
                      "REQUEST_RUNNING");
  }
  if (entry.is_forgotten) {
    return WithReason(absl::AlreadyExistsError(absl::StrCat("request_id: the request ", Quoted(identity.name),
                                                            " is running, and there was no memory to keep its stream "
                                                            "for another call (--max-replay-bytes)")),
                      "REQUEST_RUNNING");
  }
  return entry.stream;
}

absl::StatusOr<bool> ResumableRequests::IsSame(const Entry& entry, const Identity& identity) {
  const TokenStream& stream = *entry.stream;
  if (entry.digest != identity.digest || identity.seed.value_or(stream.seed()) != stream.seed()) return false;
  const absl::Status status = stream.CheckReceived(stream.ReceivedOf(identity.continued));
  if (absl::IsNotFound(status)) return status;
  return status.ok();
}

absl::StatusOr<std::shared_ptr<TokenStream>> ResumableRequests::FindSame(const Identity& identity) {
  const MutexLock lock(&mutex_);
  return SameOrNull(identity);
}

absl::StatusOr<std::shared_ptr<TokenStream>> ResumableRequests::Add(const Identity& identity, uint64_t nonce,
                                                                    std::shared_ptr<TokenStream> stream,
                                                                    RequestRegistry* registry) {
  std::vector<Entry> removed;
  absl::StatusOr<std::shared_ptr<TokenStream>> kept;
  {
    const MutexLock lock(&mutex_);
    kept = Insert(identity, nonce, std::move(stream), registry, &removed);
  }
  for (const Entry& entry : removed) entry.stream->Drop(UnknownRequestError());
  return kept;
}

absl::StatusOr<std::shared_ptr<TokenStream>> ResumableRequests::Insert(const Identity& identity, uint64_t nonce,
                                                                       std::shared_ptr<TokenStream> stream,
                                                                       RequestRegistry* registry,
                                                                       std::vector<Entry>* removed, Entry* replaced) {
  QUIRE_ASSIGN_OR_RETURN(std::shared_ptr<TokenStream> same, SameOrNull(identity));
  if (same != nullptr) return same;
  if (!MakeMemory(identity.tenant, stream->num_first_bytes(), removed)) {
    ++counts_.forgotten;
    return NoReplayMemoryError();
  }
  const Key key(identity.owner, identity.name);
  auto it = entries_.find(key);
  // A stream that is about to end still has the name, and so has one that the client cannot continue.
  if (it != entries_.end()) {
    const bool is_closed = it->second.stream->is_closed();
    if (is_closed || !IsSame(it->second, identity).ok()) it->second.registration = nullptr;
  }
  std::unique_ptr<RequestRegistry::Registration> registration;
  if (replaced != nullptr && replaced->registration != nullptr) {
    registration = std::move(replaced->registration);
    registration->GiveTo(stream, identity.tenant);
  } else {
    QUIRE_ASSIGN_OR_RETURN(registration, registry->Register(identity.owner, identity.name, stream, identity.tenant));
  }
  registration->StopWaiting();  // Each call has a registration of its own for this.
  if (it != entries_.end()) removed->push_back(Take(it));
  const auto added = entries_.emplace(key, Entry{.id = stream->id(),
                                                 .nonce = nonce,
                                                 .tenant = identity.tenant,
                                                 .digest = identity.digest,
                                                 .stream = stream,
                                                 .registration = std::move(registration)});
  AddBytes(&added.first->second, stream->num_first_bytes());
  return stream;
}

absl::Status ResumableRequests::CheckGivesWay(const Entry& known, const Restored& restored) {
  const bool is_same = known.restored.has_value() && known.restored->nonce == restored.nonce;
  if (!is_same) {
    if (!known.is_attached && known.restored.has_value() &&
        known.restored->arrival_unix_us < restored.arrival_unix_us) {
      return absl::OkStatus();
    }
    return absl::AlreadyExistsError("a request of this name that began later is known");
  }
  const bool repeats_tokens = known.restored->repeats_tokens && restored.repeats_tokens;
  if (known.is_attached && !repeats_tokens) {
    return absl::AlreadyExistsError("the client continues with the copy of the request of another worker");
  }
  // The other worker may have continued meanwhile.
  const bool is_ahead = known.stream->NumTokens() >= restored.copy.num_all_tokens();
  const bool is_complete = known.has_ended && !known.has_failed;
  if (!IsLaterCopy(restored.copy, known.restored->copy) || (repeats_tokens && (is_ahead || is_complete))) {
    return absl::AlreadyExistsError("another worker has come farther with the request");
  }
  return absl::OkStatus();
}

absl::Status ResumableRequests::Restore(const Identity& identity, const Restored& restored,
                                        const std::shared_ptr<TokenStream>& stream, RequestRegistry* registry,
                                        std::optional<absl::Duration> grace_left) {
  const Key key(identity.owner, identity.name);
  std::vector<Entry> removed;
  std::optional<Entry> replaced;
  absl::Status status;
  {
    const MutexLock lock(&mutex_);
    if (const auto it = entries_.find(key); it != entries_.end()) {
      QUIRE_RETURN_IF_ERROR(CheckGivesWay(it->second, restored));
      replaced = Take(it);
    }
    const bool had_name = replaced.has_value() && replaced->registration != nullptr;
    Entry* const known = replaced.has_value() ? &*replaced : nullptr;
    status = Insert(identity, restored.nonce, stream, registry, &removed, known).status();
    if (status.ok()) {
      Entry* const entry = FindEntry(key, stream->id());
      entry->restored = restored;
      if (grace_left.has_value()) {
        entry->max_expires_us = clock_->NowMicros() + absl::ToInt64Microseconds(*grace_left);
      }
      // Under the same lock, because a client may come as soon as the stream is known.
      status = Detach(key, stream->id(), &removed);
    }
    if (!status.ok() && known != nullptr) {
      // If the new stream was known for a moment, it still has the registration.
      const auto refused =
          std::find_if(removed.begin(), removed.end(), [&](const Entry& entry) { return entry.id == stream->id(); });
      if (had_name && refused != removed.end()) {
        known->registration = std::move(refused->registration);
        known->registration->GiveTo(known->stream, known->tenant);
      }
      PutBack(key, *std::exchange(replaced, std::nullopt));
    }
  }
  if (replaced.has_value()) replaced->stream->Drop(RestoringError());
  DropOthers(removed, stream->id());
  return status;
}

absl::StatusOr<std::shared_ptr<TokenStream>> ResumableRequests::Find(const std::string& resume_token,
                                                                     const std::string& owner) {
  QUIRE_ASSIGN_OR_RETURN(const ResumeToken token,
                         DecodeResumeToken(resume_token, key_, owner, absl::ToUnixSeconds(absl::Now())));
  Entry lost;
  {
    const MutexLock lock(&mutex_);
    const auto it = entries_.find(Key(token.owner, token.name));
    if (it == entries_.end() || it->second.nonce != token.nonce) return UnknownRequestError();
    if (!it->second.is_forgotten) return it->second.stream;
    lost = Take(it);
  }
  lost.stream->Drop(TakenOverError());
  return UnknownRequestError();
}

void ResumableRequests::Remove(const Identity& identity, RequestId id) {
  OnClosed(Key(identity.owner, identity.name), id);
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
  if (entry->expires_us != kNever) {
    expiries_.erase({entry->expires_us, key});
    WaitingLike(*entry).Remove(entry->tenant, entry->expires_us, key);
  }
  entry->expires_us = expires_us;
  if (expires_us == kNever) return;
  expiries_.insert({expires_us, key});
  WaitingLike(*entry).Add(entry->tenant, expires_us, key);
  if (expiries_.begin()->second == key) changed_.NotifyAll();
}

void ResumableRequests::SetGrace(const Key& key, Entry* entry) {
  const int64_t expires_us = clock_->NowMicros() + absl::ToInt64Microseconds(options_.grace);
  SetExpiry(key, entry, std::min(expires_us, entry->max_expires_us));
}

void ResumableRequests::AddBytes(Entry* entry, int64_t num_bytes) {
  entry->num_bytes += num_bytes;
  replay_bytes_ += num_bytes;
  int64_t& of_tenant = bytes_by_tenant_[entry->tenant];
  of_tenant += num_bytes;
  if (of_tenant == 0) bytes_by_tenant_.erase(entry->tenant);
}

bool ResumableRequests::HasMemory(const std::string& tenant, int64_t num_bytes) const {
  const int64_t total = replay_bytes_ + num_bytes;
  const int64_t unreserved = options_.max_replay_bytes - options_.max_replay_bytes / kReservedPart;
  if (total > options_.max_replay_bytes) return false;
  if (total <= unreserved) return true;
  const auto it = bytes_by_tenant_.find(tenant);
  const int64_t own = it == bytes_by_tenant_.end() ? 0 : it->second;
  const auto num_tenants = static_cast<int64_t>(bytes_by_tenant_.size()) + (own == 0 ? 1 : 0);
  return own + num_bytes <= unreserved / num_tenants;
}

bool ResumableRequests::MakeMemory(const std::string& tenant, int64_t num_bytes, std::vector<Entry>* removed) {
  while (!HasMemory(tenant, num_bytes)) {
    if (ended_.size() == 0) return false;
    removed->push_back(Take(entries_.find(ended_.Has(tenant) ? ended_.VictimOf(tenant) : ended_.Victim())));
  }
  return true;
}

int64_t ResumableRequests::Grow(const Key& key, RequestId id, int64_t num_bytes) {
  std::vector<Entry> removed;
  int64_t growth = num_bytes;
  {
    const MutexLock lock(&mutex_);
    Entry* const entry = FindEntry(key, id);
    if (entry == nullptr) return num_bytes;  // The stream is about to be dropped.
    if (num_bytes < kGrowthBytes && HasMemory(entry->tenant, kGrowthBytes)) {
      growth = kGrowthBytes;
    } else if (!MakeMemory(entry->tenant, num_bytes, &removed)) {
      growth = 0;
    }
    if (growth > 0) AddBytes(entry, growth);
  }
  for (const Entry& entry : removed) entry.stream->Drop(UnknownRequestError());
  return growth;
}

void ResumableRequests::OnForgotten(const Key& key, RequestId id) {
  const MutexLock lock(&mutex_);
  Entry* const entry = FindEntry(key, id);
  if (entry == nullptr) return;
  ++counts_.forgotten;
  entry->is_forgotten = true;
  AddBytes(entry, -entry->num_bytes);
}

void ResumableRequests::OnClosed(const Key& key, RequestId id) {
  Entry removed;  // Ends after the lock.
  const MutexLock lock(&mutex_);
  if (FindEntry(key, id) != nullptr) removed = Take(entries_.find(key));
}

void ResumableRequests::OnAttached(const Key& key, RequestId id) {
  const MutexLock lock(&mutex_);
  Entry* const entry = FindEntry(key, id);
  if (entry == nullptr) return;
  ++counts_.resumed;
  entry->is_attached = true;
  entry->max_expires_us = kNever;
  SetExpiry(key, entry, kNever);
}

bool ResumableRequests::OnDetached(const Key& key, RequestId id) {
  std::vector<Entry> removed;
  absl::Status status;
  {
    const MutexLock lock(&mutex_);
    status = Detach(key, id, &removed);
  }
  DropOthers(removed, id);
  return status.ok();
}

absl::Status ResumableRequests::Detach(const Key& key, RequestId id, std::vector<Entry>* removed) {
  if (Entry* const entry = FindEntry(key, id); entry != nullptr) {
    entry->is_attached = false;
    SetGrace(key, entry);
    MakeRoom(removed);
  }
  if (FindEntry(key, id) != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError("too many requests have no client (--max-detached-requests)");
}

void ResumableRequests::DropOthers(const std::vector<Entry>& removed, RequestId id) {
  for (const Entry& entry : removed) {
    if (entry.id != id) entry.stream->Drop(UnknownRequestError());
  }
}

void ResumableRequests::OnEnded(const Key& key, RequestId id, bool is_ok) {
  std::vector<Entry> removed;
  std::unique_ptr<RequestRegistry::Registration> registration;  // Ends after the lock.
  {
    const MutexLock lock(&mutex_);
    Entry* const entry = FindEntry(key, id);
    if (entry == nullptr) return;
    registration = std::move(entry->registration);
    SetExpiry(key, entry, kNever);  // Kept like one that runs.
    entry->is_attached = false;
    entry->has_ended = true;
    entry->has_failed = !is_ok;
    SetGrace(key, entry);
    MakeRoom(&removed);
  }
  for (const Entry& entry : removed) entry.stream->Drop(UnknownRequestError());
}

void ResumableRequests::MakeRoom(std::vector<Entry>* removed) {
  while (running_.size() > options_.max_detached) {
    ++counts_.displaced;
    removed->push_back(Take(entries_.find(running_.Victim())));
  }
  while (ended_.size() > options_.max_detached) removed->push_back(Take(entries_.find(ended_.Victim())));
}

ResumableRequests::Entry ResumableRequests::Take(Entries::iterator it) {
  const int64_t expires_us = it->second.expires_us;
  const int64_t num_bytes = it->second.num_bytes;
  SetExpiry(it->first, &it->second, kNever);
  AddBytes(&it->second, -num_bytes);
  Entry entry = std::move(it->second);
  entries_.erase(it);
  entry.expires_us = expires_us;
  entry.num_bytes = num_bytes;
  return entry;
}

void ResumableRequests::PutBack(const Key& key, Entry entry) {
  const int64_t expires_us = std::exchange(entry.expires_us, kNever);
  const int64_t num_bytes = std::exchange(entry.num_bytes, 0);
  Entry* const added = &entries_.emplace(key, std::move(entry)).first->second;
  AddBytes(added, num_bytes);
  SetExpiry(key, added, expires_us);
}

absl::flat_hash_set<RequestId> ResumableRequests::Detached() const {
  absl::flat_hash_set<RequestId> detached;
  const MutexLock lock(&mutex_);
  // The analysis of locks does not see that the lock is held while the lambda runs.
  const Entries* const entries = &entries_;
  running_.ForEach([&](const Key& key) { detached.insert(entries->find(key)->second.id); });
  return detached;
}

DetachedCounts ResumableRequests::counts() const {
  const MutexLock lock(&mutex_);
  DetachedCounts counts = counts_;
  counts.ended = static_cast<int64_t>(ended_.size());
  counts.running = static_cast<int64_t>(running_.size());
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
