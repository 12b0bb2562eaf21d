// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/guide_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "grammar/grammar.h"
#include "grammar/guide_source.h"
#include "kv_manager/engine/work_time.h"

namespace quire {
namespace {

constexpr size_t kEntryBytes = 200;        // An entry without its message.
constexpr size_t kMaxFullAccounts = 1024;  // When there are more accounts, the full ones are forgotten.
constexpr int64_t kRetryMs = 1000;
constexpr int64_t kMaxIdleUs = 86'400'000'000;  // After a day every account is full, and a product with it fits.

Sha256Digest KeyOf(const GuideUser& user, const v1::Guide& guide) {
  return Sha256(absl::StrCat(user.salt.size(), ",", user.salt, guide.SerializeAsString()));
}

absl::Status EmptyAccount(const std::string& tenant) {
  return WithRetryDelay(
      WithReason(absl::ResourceExhaustedError(
                     absl::StrCat("guided: to compile the new guides of tenant \"", tenant, "\" has taken more than ",
                                  GuideCache::kSavedUsPerSecond / 1000, " ms of each second for too long")),
                 "TOO_MANY_NEW_GUIDES", {{"tenant", tenant}}),
      kRetryMs);
}

}  // namespace

bool GuideCache::Knows(const GuideUser& user, const v1::Guide& guide) const {
  const Sha256Digest key = KeyOf(user, guide);
  const MutexLock lock(&mutex_);
  return index_.contains(key);
}

absl::Status GuideCache::Check(const GuideUser& user, const v1::Guide& guide) {
  const Sha256Digest key = KeyOf(user, guide);
  {
    const MutexLock lock(&mutex_);
    while (compiling_.contains(key)) compiled_.Wait(&mutex_);
    if (const auto known = index_.find(key); known != index_.end()) return Use(known->second, user);
    if (user.pays && SavedOf(user.tenant) <= 0) {
      counts_->Count(RpcRefusal::kTooManyNewGuides);
      return EmptyAccount(user.tenant);
    }
    compiling_.insert(key);
  }
  const WorkTime start = WorkTime::Now(*clock_);
  const absl::Status status = grammar::Compile(grammar::SourceOf(guide)).status();
  const WorkTime spent = WorkTime::Now(*clock_) - start;
  const MutexLock lock(&mutex_);
  const int64_t cost_us = std::max<int64_t>(spent.cpu_us, 1);
  if (user.pays) SavedOf(user.tenant) -= cost_us;
  Keep({key, status, cost_us, ++num_uses_});
  compiling_.erase(key);
  compiled_.NotifyAll();
  return status;
}

absl::Status GuideCache::Use(std::list<Entry>::iterator entry, const GuideUser& user) {
  const bool is_dropped = entry->status.ok() && num_uses_ - entry->last_use > kKeptByWorkers;
  if (is_dropped && user.pays) {
    int64_t& saved_us = SavedOf(user.tenant);
    if (saved_us <= 0) {
      counts_->Count(RpcRefusal::kTooManyNewGuides);
      return EmptyAccount(user.tenant);
    }
    saved_us -= entry->cost_us;
  }
  if (entry != entries_.begin()) ++num_uses_;
  entry->last_use = num_uses_;
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->status;
}

size_t GuideCache::BytesOf(const Entry& entry) {
  return kEntryBytes + entry.status.message().size();
}

int64_t GuideCache::GainOf(const Account& account, int64_t now_us) {
  return std::min(now_us - account.updated_us, kMaxIdleUs) * kSavedUsPerSecond / 1'000'000;
}

int64_t& GuideCache::SavedOf(const std::string& tenant) {
  const int64_t now_us = clock_->NowMicros();
  if (accounts_.size() > kMaxFullAccounts) {
    absl::erase_if(accounts_, [&](const auto& entry) {
      return entry.second.saved_us + GainOf(entry.second, now_us) >= max_saved_us_;
    });
  }
  const auto [entry, is_new] = accounts_.try_emplace(tenant, Account{.saved_us = max_saved_us_, .updated_us = now_us});
  Account& account = entry->second;
  const int64_t gained_us = GainOf(account, now_us);
  if (gained_us > 0) {
    account.saved_us = std::min(account.saved_us + gained_us, max_saved_us_);
    account.updated_us = now_us;
  }
  return account.saved_us;
}

void GuideCache::Keep(Entry entry) {
  entries_.push_front(std::move(entry));
  index_[entries_.front().key] = entries_.begin();
  num_bytes_ += BytesOf(entries_.front());
  while (num_bytes_ > kMaxBytes && entries_.size() > 1) {
    num_bytes_ -= BytesOf(entries_.back());
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace quire
