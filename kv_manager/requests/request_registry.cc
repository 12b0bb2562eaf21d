// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_registry.h"

#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/requests/tenancy.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {

RequestRegistry::Registration::~Registration() {
  FreeName();
  StopWaiting();
}

void RequestRegistry::Registration::FreeName() {
  registry_->FreeName(this);
}

void RequestRegistry::Registration::GiveTo(std::shared_ptr<TokenStream> stream, const std::string& tenant) {
  registry_->Give(this, std::move(stream), tenant);
}

void RequestRegistry::Registration::StopWaiting() {
  registry_->StopWaiting(this);
}

absl::StatusOr<std::unique_ptr<RequestRegistry::Registration>> RequestRegistry::Register(
    const std::string& owner, const std::string& name, std::shared_ptr<TokenStream> stream, const std::string& tenant) {
  const MutexLock lock(&mutex_);
  if (streams_.contains({owner, name})) {
    return WithReason(absl::AlreadyExistsError(absl::StrCat("request_id: a request ", Quoted(name), " is running")),
                      "REQUEST_RUNNING");
  }
  if (!HasPlaceFor(tenant)) {
    return WithRetryDelay(WithReason(absl::ResourceExhaustedError(
                                         absl::StrCat(streams_.size(), " requests are running, and the limit is ",
                                                      max_requests_, " (--max-requests)")),
                                     "TOO_MANY_REQUESTS", {{"max_requests", absl::StrCat(max_requests_)}}),
                          /*delay_ms=*/500);
  }
  streams_.emplace(Key(owner, name), std::move(stream));
  ++num_by_tenant_[tenant];
  ++num_awaited_;
  return std::unique_ptr<Registration>(
      new Registration(this, Key(owner, name), tenant, /*has_name=*/true, /*is_resumable=*/false));
}

std::unique_ptr<RequestRegistry::Registration> RequestRegistry::AwaitReader() {
  const MutexLock lock(&mutex_);
  ++num_awaited_;
  ++num_awaited_resumable_;
  return std::unique_ptr<Registration>(new Registration(this, {}, "", /*has_name=*/false, /*is_resumable=*/true));
}

bool RequestRegistry::HasPlaceFor(const std::string& tenant) const {
  if (streams_.size() < max_requests_) return true;
  constexpr size_t kReservedPart = 8;
  if (streams_.size() >= max_requests_ + (max_requests_ + kReservedPart - 1) / kReservedPart) return false;
  const auto own = num_by_tenant_.find(tenant);
  const size_t num_own = own == num_by_tenant_.end() ? 0 : own->second;
  const size_t num_tenants = num_by_tenant_.size() + (num_own == 0 ? 1 : 0);
  return (num_own + 1) * num_tenants <= max_requests_;
}

void RequestRegistry::FreeName(Registration* registration) {
  std::shared_ptr<TokenStream> stream;  // Released after the lock.
  const MutexLock lock(&mutex_);
  if (!std::exchange(registration->has_name_, false)) return;
  const auto it = streams_.find(registration->key_);
  stream = std::move(it->second);
  streams_.erase(it);
  Uncount(registration->tenant_);
}

void RequestRegistry::Uncount(const std::string& tenant) {
  if (const auto count = num_by_tenant_.find(tenant); --count->second == 0) num_by_tenant_.erase(count);
}

void RequestRegistry::Give(Registration* registration, std::shared_ptr<TokenStream> stream, const std::string& tenant) {
  const MutexLock lock(&mutex_);
  QUIRE_CHECK(registration->has_name_) << registration->key_.second;
  streams_.find(registration->key_)->second.swap(stream);  // The other stream is released after the lock.
  Uncount(registration->tenant_);
  ++num_by_tenant_[tenant];
  registration->tenant_ = tenant;
}

void RequestRegistry::StopWaiting(Registration* registration) {
  const MutexLock lock(&mutex_);
  if (!std::exchange(registration->is_awaited_, false)) return;
  --num_awaited_;
  if (registration->is_resumable_) --num_awaited_resumable_;
  if (NumAwaited(/*counts_resumable=*/false) == 0) all_read_.NotifyAll();
}

bool RequestRegistry::WaitForReaders(absl::Duration timeout, bool awaits_resumable) {
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoMicroseconds(timeout);
  const MutexLock lock(&mutex_);
  while (NumAwaited(awaits_resumable) > 0) {
    if (!all_read_.WaitUntil(&mutex_, end)) return NumAwaited(awaits_resumable) == 0;
  }
  return true;
}

absl::flat_hash_map<RequestId, std::string> RequestRegistry::Names() const {
  absl::flat_hash_map<RequestId, std::string> names;
  const MutexLock lock(&mutex_);
  names.reserve(streams_.size());
  for (const auto& [key, stream] : streams_) names.emplace(stream->id(), key.second);
  return names;
}

absl::StatusOr<std::shared_ptr<TokenStream>> RequestRegistry::Find(const std::optional<Caller>& caller,
                                                                   const std::string& name) const {
  const MutexLock lock(&mutex_);
  if (const auto it = streams_.find({OwnerOf(caller), name}); it != streams_.end()) return it->second;
  if (caller.has_value() && caller->is_admin) {
    QUIRE_ASSIGN_OR_RETURN(std::shared_ptr<TokenStream> found, FindOfAnyOwner(name));
    if (found != nullptr) return found;
  }
  return WithReason(absl::NotFoundError(absl::StrCat("request_id: no request ", Quoted(name), " waits or runs")),
                    "REQUEST_NOT_RUNNING");
}

absl::StatusOr<std::shared_ptr<TokenStream>> RequestRegistry::FindOfAnyOwner(const std::string& name) const {
  std::shared_ptr<TokenStream> found;
  for (const auto& [key, stream] : streams_) {
    if (key.second != name) continue;
    if (found != nullptr) {
      return WithReason(absl::FailedPreconditionError(absl::StrCat("request_id: several tenants run a request ",
                                                                   Quoted(name), "; use the token of the one meant")),
                        "AMBIGUOUS_REQUEST");
    }
    found = stream;
  }
  return found;
}

}  // namespace quire
