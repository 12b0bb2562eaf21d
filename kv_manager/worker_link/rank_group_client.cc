// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/rank_group_client.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/listen_address.h"
#include "base/status_reason.h"
#include "base/worker_protocol.h"
#include "kv_manager/worker_link/joint_description.h"

namespace quire {
namespace {

std::string RandomKey() {
  std::random_device random;
  std::string key;
  for (int i = 0; i < kGroupKeyBytes; ++i) key.push_back(static_cast<char>(random()));
  return key;
}

}  // namespace

class RankGroupClient::RankListener : public Listener {
 public:
  RankListener(RankGroupClient* group, size_t rank) : group_(group), rank_(rank) {}

  void OnDescribed(uint64_t epoch, WorkerDescription description) override {
    group_->OnDescribed(rank_, epoch, std::move(description));
  }
  void OnOpened(uint64_t epoch, std::unique_ptr<WorkerInventory> inventory) override {
    group_->OnOpened(rank_, epoch, std::move(inventory));
  }
  void OnResult(uint64_t epoch, StepResult result, int64_t duration_us) override {
    group_->OnResult(rank_, epoch, std::move(result), duration_us);
  }
  void OnDraining(uint64_t epoch) override { group_->OnDraining(epoch); }
  void OnProbed(uint64_t epoch) override { group_->OnProbed(rank_, epoch); }
  void OnLost(uint64_t epoch, absl::Status reason) override { group_->OnLost(rank_, epoch, std::move(reason)); }

 private:
  RankGroupClient* const group_;
  const size_t rank_;
};

RankGroupClient::RankGroupClient(const std::string& address, MakeClient make_client)
    : address_(address), make_client_(std::move(make_client)) {
  ranks_ = {ClientOf(0, address)};
  states_.resize(1);
}

RankGroupClient::RankGroupClient(std::vector<std::unique_ptr<WorkerClient>> ranks) {
  QUIRE_CHECK(!ranks.empty());
  for (size_t i = 0; i < ranks.size(); ++i) ranks_.push_back(Keep(i, "", std::move(ranks[i])));
  states_.resize(ranks_.size());
}

RankGroupClient::~RankGroupClient() {
  const MutexLock lock(&mutex_);
  is_over_ = true;
  Ranks();
}

WorkerClient* RankGroupClient::Keep(size_t rank, const std::string& address, std::unique_ptr<WorkerClient> client) {
  known_.push_back({rank, address, std::make_unique<RankListener>(this, rank), std::move(client)});
  known_.back().client->SetListener(known_.back().listener.get());
  return known_.back().client.get();
}

WorkerClient* RankGroupClient::ClientOf(size_t rank, const std::string& address) {
  for (const KnownRank& known : known_) {
    if (known.rank == rank && known.address == address) return known.client.get();
  }
  return Keep(rank, address, make_client_(address));
}

void RankGroupClient::SetListener(Listener* listener) {
  listener_ = listener;
}

void RankGroupClient::Begin(uint64_t epoch, size_t num_ranks) {
  epoch_ = epoch;
  is_over_ = false;
  is_draining_ = false;
  is_opening_ = false;
  is_probing_ = false;
  told_ = std::vector<Rank>(num_ranks);
}

std::vector<WorkerClient*> RankGroupClient::Ranks() {
  while (is_asking_) has_asked_.Wait(&mutex_);
  return {ranks_.begin(), ranks_.begin() + static_cast<std::ptrdiff_t>(told_.size())};
}

void RankGroupClient::Describe(uint64_t epoch) {
  std::vector<WorkerClient*> ranks;
  {
    const MutexLock lock(&mutex_);
    Ranks();  // Waits.
    Begin(epoch, make_client_ == nullptr ? ranks_.size() : 1);
    ranks = Ranks();
  }
  for (WorkerClient* rank : ranks) rank->Describe(epoch);
}

void RankGroupClient::Open(uint64_t epoch, bool adopts) {
  std::vector<WorkerClient*> ranks;
  SessionGroup group;
  {
    const MutexLock lock(&mutex_);
    if (is_over_) return;
    ranks = Ranks();
    Begin(epoch, ranks.size());
    is_opening_ = true;
    group = group_;
  }
  if (!group.transport_addresses.empty()) {
    group.key = RandomKey();
    for (WorkerClient* rank : ranks) rank->SetGroup(group);
  }
  for (WorkerClient* rank : ranks) rank->Open(epoch, adopts);
}

void RankGroupClient::Refuse(const std::string& reason) {
  std::vector<WorkerClient*> ranks;
  {
    const MutexLock lock(&mutex_);
    ranks = Ranks();
  }
  for (WorkerClient* rank : ranks) rank->Refuse(reason);
}

void RankGroupClient::Send(const StepPlan& plan) {
  std::vector<WorkerClient*> ranks;
  {
    const MutexLock lock(&mutex_);
    if (is_over_) return;
    ranks = Ranks();
  }
  for (WorkerClient* rank : ranks) rank->Send(plan);
}

void RankGroupClient::Probe(uint64_t epoch) {
  std::vector<WorkerClient*> ranks;
  {
    const MutexLock lock(&mutex_);
    if (!IsCurrent(epoch)) return;
    for (Rank& rank : told_) rank.is_probed = false;
    is_probing_ = true;
    ranks = Ranks();
  }
  for (WorkerClient* rank : ranks) rank->Probe(epoch);
}

void RankGroupClient::Close() {
  std::vector<WorkerClient*> ranks;
  {
    const MutexLock lock(&mutex_);
    if (!is_over_) {
      ClearStates();
      for (size_t rank = 0; rank < told_.size(); ++rank) states_[rank].last_error = WhatIsMissing(told_[rank]);
      ShowStates();
    }
    is_over_ = true;
    ranks = Ranks();
  }
  for (WorkerClient* rank : ranks) rank->Close();
}

RankStates RankGroupClient::ranks() const {
  const MutexLock lock(&mutex_);
  return shown_states_;
}

std::string RankGroupClient::WhatIsMissing(const Rank& rank) const {
  if (!is_opening_) return rank.is_described ? "" : "it has not described itself";
  if (!rank.is_opened) return "it has not joined the session";
  return is_probing_ && !rank.is_probed ? "it has not answered a probe" : "";
}

void RankGroupClient::ClearStates() {
  for (RankState& state : states_) {
    state.is_ready = false;
    state.is_refused = false;
    state.last_error.clear();
  }
}

void RankGroupClient::ShowStates() {
  shown_states_ = states_.size() > 1 ? std::make_shared<const std::vector<RankState>>(states_) : nullptr;
}

std::string RankGroupClient::AddressOf(int rank, const WorkerDescription::RankPlace& place) const {
  return rank == 0 || place.addresses.empty() ? RankAddress(address_, rank) : place.addresses[rank];
}

void RankGroupClient::DescribeOthers(uint64_t epoch, const WorkerDescription::RankPlace& place) {
  ranks_.resize(std::max(ranks_.size(), static_cast<size_t>(place.size)));
  for (int rank = 1; rank < place.size; ++rank) {
    ranks_[rank] = ClientOf(rank, AddressOf(rank, place));
    ranks_[rank]->Describe(epoch);
  }
  absl::Status refusal;
  {
    const MutexLock lock(&mutex_);
    is_asking_ = false;
    has_asked_.NotifyAll();
    refusal = std::exchange(refusal_, absl::OkStatus());
  }
  if (!refusal.ok()) Refuse(std::string(refusal.message()));
}

void RankGroupClient::OnDescribed(size_t rank, uint64_t epoch, WorkerDescription description) {
  absl::Status refusal;
  std::optional<WorkerDescription::RankPlace> group;  // Whose other ranks are to be asked.
  {
    const MutexLock lock(&mutex_);
    if (!IsCurrent(epoch)) return;
    if (rank == 0 && make_client_ != nullptr) {
      if (description.place.size > 1) group = description.place;
      states_.resize(description.place.size);
      for (int i = 0; i < description.place.size; ++i) states_[i].address = AddressOf(i, description.place);
    }
    states_[rank].device = description.device;
    ShowStates();
    told_[rank].description = std::move(description);
    told_[rank].is_described = true;
    if (group) {
      told_.resize(group->size);
      is_asking_ = true;
    } else if (std::all_of(told_.begin(), told_.end(), [](const Rank& other) { return other.is_described; })) {
      refusal = OnAllDescribed();
      // This may be the thread that asks, so it cannot wait for it.
      if (is_asking_) refusal_ = std::exchange(refusal, absl::OkStatus());
    }
  }
  if (group) DescribeOthers(epoch, *group);
  if (!refusal.ok()) Refuse(std::string(refusal.message()));
}

absl::Status RankGroupClient::OnAllDescribed() {
  std::vector<WorkerDescription> descriptions;
  group_ = {};
  for (Rank& rank : told_) {
    const std::string& address = rank.description.place.transport_address;
    if (!address.empty()) group_.transport_addresses.push_back(address);
    descriptions.push_back(std::move(rank.description));
  }
  absl::StatusOr<WorkerDescription> joint = JoinDescriptions(descriptions);
  if (!joint.ok()) {
    Lose(joint.status());
  } else {
    listener_->OnDescribed(epoch_, *std::move(joint));
  }
  return joint.status();
}

void RankGroupClient::OnOpened(size_t rank, uint64_t epoch, std::unique_ptr<WorkerInventory> inventory) {
  const MutexLock lock(&mutex_);
  if (!IsCurrent(epoch)) return;
  told_[rank].inventory = std::move(inventory);
  told_[rank].is_opened = true;
  states_[rank].is_ready = true;
  states_[rank].last_error.clear();
  ShowStates();
  if (!std::all_of(told_.begin(), told_.end(), [](const Rank& other) { return other.is_opened; })) return;
  absl::Status status = CompareInventories();
  if (!status.ok()) return Lose(std::move(status));
  listener_->OnOpened(epoch, std::move(told_[0].inventory));
}

absl::Status RankGroupClient::CompareInventories() const {
  const WorkerInventory* const first = told_[0].inventory.get();
  for (size_t rank = 1; rank < told_.size(); ++rank) {
    const WorkerInventory* const other = told_[rank].inventory.get();
    if ((first == nullptr) != (other == nullptr)) {
      return absl::InternalError(absl::StrCat("rank ", rank, " has kept ", other == nullptr ? "nothing" : "rows",
                                              " of the last session, and rank 0 ",
                                              first == nullptr ? "nothing" : "rows"));
    }
    const bool differs = first != nullptr && (first->epoch != other->epoch || first->last_step != other->last_step ||
                                              first->digest != other->digest);
    if (differs) {
      return absl::InternalError(absl::StrCat("rank ", rank, " has kept other rows than rank 0: its last step is ",
                                              Value(other->last_step), " of epoch ", other->epoch, ", that of rank 0 ",
                                              Value(first->last_step), " of epoch ", first->epoch));
    }
  }
  return absl::OkStatus();
}

void RankGroupClient::OnResult(size_t rank, uint64_t epoch, StepResult result, int64_t duration_us) {
  const MutexLock lock(&mutex_);
  if (!IsCurrent(epoch)) return;
  told_[rank].answers.push_back({std::move(result), duration_us});
  if (std::any_of(told_.begin(), told_.end(), [](const Rank& other) { return other.answers.empty(); })) return;
  absl::StatusOr<Answer> answer = TakeAnswers();
  if (!answer.ok()) return Lose(answer.status());
  listener_->OnResult(epoch, std::move(answer->result), answer->duration_us);
}

absl::StatusOr<RankGroupClient::Answer> RankGroupClient::TakeAnswers() {
  Answer joint = std::move(told_[0].answers.front());
  for (size_t rank = 0; rank < told_.size(); ++rank) {
    const Answer& other = told_[rank].answers.front();
    if (rank > 0 && (other.result.step != joint.result.step || other.result.digest != joint.result.digest)) {
      return WithReason(absl::InternalError(absl::StrCat("rank ", rank, " has computed another result in step ",
                                                         Value(other.result.step), " than rank 0 in step ",
                                                         Value(joint.result.step))),
                        kRanksDiffer);
    }
    joint.duration_us = std::max(joint.duration_us, other.duration_us);
    told_[rank].answers.pop_front();
  }
  return joint;
}

void RankGroupClient::OnDraining(uint64_t epoch) {
  const MutexLock lock(&mutex_);
  if (IsCurrent(epoch) && !std::exchange(is_draining_, true)) listener_->OnDraining(epoch);
}

void RankGroupClient::OnProbed(size_t rank, uint64_t epoch) {
  const MutexLock lock(&mutex_);
  if (!IsCurrent(epoch)) return;
  told_[rank].is_probed = true;
  if (!std::all_of(told_.begin(), told_.end(), [](const Rank& other) { return other.is_probed; })) return;
  for (Rank& other : told_) other.is_probed = false;  // An answer that comes late tells the loop nothing.
  is_probing_ = false;
  listener_->OnProbed(epoch);
}

// The reason keeps its payload, which may name a request.
void RankGroupClient::OnLost(size_t rank, uint64_t epoch, absl::Status reason) {
  const MutexLock lock(&mutex_);
  if (!IsCurrent(epoch)) return;
  ClearStates();
  states_[rank].is_refused = absl::IsFailedPrecondition(reason);
  states_[rank].last_error = std::string(reason.message());
  if (told_.size() == 1) return Lose(std::move(reason));
  absl::Status named(reason.code(), absl::StrCat("rank ", rank, ": ", reason.message()));
  reason.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { named.SetPayload(url, payload); });
  Lose(std::move(named));
}

void RankGroupClient::Lose(absl::Status reason) {
  is_over_ = true;
  for (RankState& state : states_) state.is_ready = false;
  ShowStates();
  listener_->OnLost(epoch_, std::move(reason));
}

}  // namespace quire
