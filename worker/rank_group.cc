// SPDX-License-Identifier: Apache-2.0

#include "worker/rank_group.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fingerprint.h"
#include "base/status_reason.h"
#include "base/worker_protocol.h"

namespace quire {
namespace {

absl::Status PeerLost(absl::string_view message) {
  return WithReason(absl::UnavailableError(message), kGroupPeerLost);
}

}  // namespace

RankGroup::RankGroup(const RankPlace& place, CollectiveOpener open, std::chrono::milliseconds patience)
    : place_(place), open_(std::move(open)), patience_(patience), watch_([this] { Watch(); }) {}

RankGroup::~RankGroup() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
    changed_.NotifyAll();
  }
  watch_.join();
}

absl::StatusOr<std::string> RankGroup::TransportAddress() const {
  const MutexLock lock(&mutex_);
  if (next_ != nullptr) return next_->address();
  return absl::UnavailableError(absl::StrCat("the rank has no address for the other ranks: ", why_not_));
}

absl::Status RankGroup::Check(const v1::SessionGroup& group) const {
  if (group.transport_addresses_size() != place_.size || group.key().size() != kGroupKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "OpenSession.group has ", group.transport_addresses_size(), " addresses and a key of ", group.key().size(),
        " bytes; this is a rank of ", place_.size, ", with a key of ", kGroupKeyBytes, " bytes"));
  }
  const absl::StatusOr<std::string> address = TransportAddress();
  if (address.ok() && group.transport_addresses(place_.rank) == *address) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("OpenSession.group has another address of rank ", place_.rank, " than its last description"));
}

void RankGroup::Take(const v1::SessionGroup& group) {
  const MutexLock lock(&mutex_);
  current_ = std::move(next_);
  group_ = group;
  end_.reset();
}

void RankGroup::EndSoon() {
  const MutexLock lock(&mutex_);
  if (current_ == nullptr || end_.has_value()) return;
  end_ = std::chrono::steady_clock::now() + patience_;
  changed_.NotifyAll();
}

void RankGroup::PrepareNext() {
  {
    const MutexLock lock(&mutex_);
    if (next_ != nullptr) return;
  }
  std::string why_not;
  std::unique_ptr<SessionCollective> next = open_(&why_not);
  const MutexLock lock(&mutex_);
  next_ = std::move(next);
  why_not_ = std::move(why_not);
}

absl::Status RankGroup::Join() {
  SessionCollective* group;
  std::vector<std::string> addresses;
  GroupKey key;
  {
    const MutexLock lock(&mutex_);
    group = current_.get();
    for_steps_.SetGroup(group);
    for_plans_.SetGroup(group);
    addresses.assign(group_.transport_addresses().begin(), group_.transport_addresses().end());
    std::copy_n(group_.key().begin(), key.size(), key.begin());
  }
  is_over_ = !group->Join(place_.rank, addresses, key);
  return is_over_ ? Lost(group->Status()) : absl::OkStatus();
}

Collective* RankGroup::collective() {
  const MutexLock lock(&mutex_);
  return current_ == nullptr ? nullptr : &for_steps_;
}

absl::Status RankGroup::Agree(uint64_t epoch, const v1::StepPlan& plan) {
  Fingerprint hash;
  hash.Add(plan.SerializeAsString());
  return Exchange({.epoch = epoch, .step = plan.step(), .plan = hash.Low()});
}

void RankGroup::TellEnd(bool has_failed) {
  if (!is_over_ && !has_failed) Exchange({}).IgnoreError();
  is_over_ = true;
}

void RankGroup::Leave() {
  std::unique_ptr<SessionCollective> left;
  {
    const MutexLock lock(&mutex_);
    left = std::move(current_);
    end_.reset();
  }
}

absl::Status RankGroup::Exchange(const Intent& own) {
  if (is_over_) return PeerLost("the ranks have ended their session");
  std::vector<Intent> all(place_.size);
  absl::Status status;
  if (!for_plans_.AllGather(&own, sizeof(own), all.data())) status = Lost(for_plans_.Status());
  for (int rank = 0; rank < place_.size && status.ok(); ++rank) {
    const Intent& other = all[rank];
    if (other.step == 0) {
      status = PeerLost(absl::StrCat("rank ", rank, " has ended its session"));
    } else if (other.epoch != own.epoch || other.step != own.step || other.plan != own.plan) {
      status = absl::InvalidArgumentError(absl::StrCat("rank ", rank, " has another plan: step ", other.step,
                                                       " of epoch ", other.epoch, ", and rank ", place_.rank, " step ",
                                                       own.step, " of epoch ", own.epoch));
    }
  }
  is_over_ = !status.ok();
  return status;
}

absl::Status RankGroup::Lost(const BackendStatus& reason) const {
  return PeerLost(absl::StrCat("the group of ranks has ended: ", reason.message()));
}

void RankGroup::Watch() {
  const MutexLock lock(&mutex_);
  while (!is_stopping_) {
    if (!end_.has_value()) {
      changed_.Wait(&mutex_);
    } else if (std::chrono::steady_clock::now() < *end_) {
      changed_.WaitUntil(&mutex_, *end_);
    } else {
      current_->Abort(BackendStatus::Error("the session is over, and another rank has not come to its end within " +
                                           std::to_string(patience_.count()) + " ms"));
      end_.reset();
    }
  }
}

}  // namespace quire
