// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/sim_ranks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kv_manager/worker_link/rank_group_client.h"
#include "tests/sim/violation.h"

namespace quire {

// Between the loop and the client under test: sees what the loop sends and what it is told.
class SimRanks::Client : public WorkerClient, private WorkerClient::Listener {
 public:
  Client(SimRanks* owner, std::unique_ptr<WorkerClient> client) : owner_(owner), client_(std::move(client)) {
    client_->SetListener(this);
  }

  void SetListener(WorkerClient::Listener* listener) override { loop_ = listener; }
  void Describe(uint64_t epoch) override { client_->Describe(epoch); }
  void Open(uint64_t epoch, bool adopts) override { client_->Open(epoch, adopts); }
  void Refuse(const std::string& reason) override { client_->Refuse(reason); }
  void Send(const StepPlan& plan) override {
    if (owner_ != nullptr) owner_->hooks_.on_plan(plan);
    client_->Send(plan);
  }
  void Probe(uint64_t epoch) override { client_->Probe(epoch); }
  void Close() override {
    if (owner_ != nullptr) owner_->EndSession();
    client_->Close();
  }
  void OnManagerLost() { owner_ = nullptr; }

 private:
  void OnDescribed(uint64_t epoch, WorkerDescription description) override {
    owner_->hooks_.on_message();
    loop_->OnDescribed(epoch, std::move(description));
    owner_->hooks_.on_describe();
  }
  void OnOpened(uint64_t epoch, std::unique_ptr<WorkerInventory> inventory) override {
    owner_->hooks_.on_message();
    const bool is_adopted = inventory != nullptr;
    if (!owner_->HaveKeptTheSame()) owner_->Complain("a group adopts what not all ranks have kept");
    owner_->is_open_ = true;
    num_results_ = 0;
    loop_->OnOpened(epoch, std::move(inventory));
    if (is_adopted) owner_->hooks_.on_adopted();
  }
  void OnResult(uint64_t epoch, StepResult result, int64_t duration_us) override {
    owner_->hooks_.on_message();
    num_results_ += epoch == owner_->epoch();
    for (const auto& rank : owner_->ranks_) {
      if (rank->num_sent() < num_results_) owner_->Complain("a step is committed that not all ranks have answered");
    }
    loop_->OnResult(epoch, std::move(result), duration_us);
  }
  void OnDraining(uint64_t epoch) override {
    owner_->hooks_.on_message();
    loop_->OnDraining(epoch);
    owner_->hooks_.on_drain();
  }
  void OnProbed(uint64_t epoch) override {
    owner_->hooks_.on_message();
    for (const auto& rank : owner_->ranks_) {
      if (rank->is_silent()) owner_->Complain("a probe is answered by a group with a silent rank");
    }
    loop_->OnProbed(epoch);
  }
  void OnLost(uint64_t epoch, absl::Status reason) override {
    owner_->hooks_.on_message();
    const bool is_opening = !owner_->is_open_ && owner_->HaveAllSessions() && epoch == owner_->epoch();
    if (is_opening && absl::IsInternal(reason) && owner_->HaveKeptTheSame()) {
      owner_->Complain("a group does not adopt what all ranks have kept");
    }
    if (epoch == owner_->epoch()) owner_->EndSession();
    loop_->OnLost(epoch, std::move(reason));
  }

  SimRanks* owner_;  // Null once the manager is dead.
  WorkerClient::Listener* loop_ = nullptr;
  const std::unique_ptr<WorkerClient> client_;
  int num_results_ = 0;  // Of this session.
};

SimRanks::SimRanks(const SimWorker& worker, const ShadowModel& model) {
  for (int i = 0; i < worker.ranks; ++i) ranks_.push_back(std::make_unique<SimWorkerProcess>(worker, model, i));
}

SimRanks::~SimRanks() = default;

std::unique_ptr<WorkerClient> SimRanks::NewClient(Hooks hooks) {
  hooks_ = std::move(hooks);
  std::vector<std::unique_ptr<WorkerClient>> clients;
  for (const auto& rank : ranks_) {
    const bool is_first = clients.empty();
    clients.push_back(rank->NewClient(is_first ? SimWorkerProcess::Hooks{.on_end = hooks_.on_end,
                                                                         .on_refusal = hooks_.on_refusal,
                                                                         .on_poison = hooks_.on_poison}
                                               : SimWorkerProcess::Hooks{}));
  }
  const bool is_group = size() > 1;
  auto client = std::make_unique<Client>(
      this, is_group ? std::make_unique<RankGroupClient>(std::move(clients)) : std::move(clients[0]));
  client_ = client.get();
  return client;
}

std::vector<SequenceStart> SimRanks::OnManagerLost(int num_plans) {
  std::exchange(client_, nullptr)->OnManagerLost();
  const int first_without_last = AnyRank();
  if (rank(0).has_plan() && first_without_last > 0 && has_session()) {
    for (int i = first_without_last; i < size(); ++i) ranks_[i]->DropLastPlan();
  }
  for (const auto& rank : ranks_) num_plans = std::min(num_plans, rank->is_silent() ? 0 : rank->num_plans());
  EndSession();
  for (const auto& rank : ranks_) {
    if (ranks_[0]->may_refuse_plans()) rank->MayRefusePlans();
  }
  std::vector<SequenceStart> lost_starts;
  for (const auto& rank : ranks_) {
    std::vector<SequenceStart> of_rank = rank->OnManagerLost(num_plans);
    if (rank == ranks_[0]) lost_starts = std::move(of_rank);
  }
  return lost_starts;
}

int SimRanks::AnyRank() {
  return size() == 1 ? 0 : static_cast<int>(MixBits(++num_drawn_) % static_cast<uint64_t>(size()));
}

bool SimRanks::is_alive() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->is_alive(); });
}

bool SimRanks::is_draining() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->is_draining(); });
}

void SimRanks::Damage(SimDamage damage) {
  if (damage == SimDamage::kOneForgotten || damage == SimDamage::kOtherRows) {
    if (size() > 1) ranks_[AnyRank()]->Damage(damage);
  } else if (damage == SimDamage::kForgotten) {
    for (const auto& rank : ranks_) rank->Damage(damage);
  } else {
    ranks_[0]->Damage(damage);  // The others tell digests alone.
  }
}

void SimRanks::EndSession() {
  is_open_ = false;
  executed_.clear();
}

void SimRanks::Die(int rank) {
  ranks_[rank]->Die();
  EndSession();
}

// Ranks with pools of another kind than the others would be refused. One that restarts may have been used by another
// manager meanwhile.
void SimRanks::Start(int num_blocks) {
  if (is_alive()) return;
  const int smallest = AnyRank();
  for (int i = 0; i < size(); ++i) {
    const bool is_larger = num_blocks > 0 && i != smallest;
    if (num_blocks > 0 && rank(i).is_alive()) ranks_[i]->Die();
    if (num_blocks == 0 && size() > 1 && !rank(i).is_alive()) ranks_[i]->OnOtherManager();
    ranks_[i]->Start(num_blocks + is_larger);
  }
}

void SimRanks::Drain(int rank) {
  ranks_[rank]->Drain();
}

void SimRanks::SetSilent(int rank, bool is_silent) {
  ranks_[rank]->SetSilent(is_silent);
}

void SimRanks::Diverge(int rank) {
  if (size() > 1) ranks_[rank]->Diverge();
}

void SimRanks::AddPoison(const Poison& poison) {
  for (const auto& rank : ranks_) rank->AddPoison(poison);
}

void SimRanks::ForgetPoisons() {
  for (const auto& rank : ranks_) rank->ForgetPoisons();
}

bool SimRanks::CanExecute() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const auto& rank) { return rank->has_plan() && rank->has_session() && !rank->is_silent(); });
}

absl::Status SimRanks::Execute() {
  const StepId step = rank(0).next_step();
  Executed executed;
  std::optional<uint64_t> digest;
  for (int i = 0; i < size(); ++i) {
    QUIRE_ASSIGN_OR_RETURN(const bool has_result, ranks_[i]->Execute());
    if (!has_result) {
      QUIRE_CHECK_EQ(i, 0);
      for (int other = 1; other < size(); ++other) ranks_[other]->Leave();
      EndSession();
      return absl::OkStatus();
    }
    executed.differs |= digest.has_value() && *digest != rank(i).last_digest();
    digest = rank(i).last_digest();
  }
  executed.answered = {rank(0).failed_slices(), rank(0).memory().early_sequences()};
  executed_.push_back(std::move(executed));
  hooks_.on_executed(step);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SimRanks::Answered>> SimRanks::Answer(std::optional<int> lagging) {
  if (CanExecute()) QUIRE_RETURN_IF_ERROR(Execute());
  // The session ends while a result is sent that differs from another rank's.
  std::deque<Executed> executed = std::move(executed_);
  executed_.clear();
  for (int i = 0; i < size(); ++i) {
    while (i != lagging && !rank(i).is_silent() && rank(i).num_unsent() > 0) ranks_[i]->SendResult();
  }
  std::vector<Answered> answered;
  for (int num_unsent = MostUnsent(); static_cast<int>(executed.size()) > num_unsent; executed.pop_front()) {
    if (executed.front().differs) {
      hooks_.on_difference();
      EndSession();
      return answered;
    }
    answered.push_back(std::move(executed.front().answered));
  }
  executed_ = std::move(executed);
  return answered;
}

int SimRanks::MostUnsent() const {
  int most = 0;
  for (const auto& rank : ranks_) most = std::max(most, rank->num_unsent());
  return most;
}

bool SimRanks::RepeatLastResult() {
  const bool has_all = executed_.empty() &&
                       std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->has_result(); });
  if (!has_all) return false;
  for (const auto& rank : ranks_) rank->RepeatLastResult();
  return true;
}

// One rank or all of them report wrong tables. If it is one, its digest is wrong as well.
void SimRanks::TellTables(SimAudit lie) {
  const int liar = AnyRank();
  for (int i = 0; i < size(); ++i) ranks_[i]->TellTables(liar == 0 || liar == i ? lie : SimAudit::kCompare);
}

bool SimRanks::HaveKeptTheSame() const {
  const WorkerInventory* const first = rank(0).adopted();
  return std::all_of(ranks_.begin(), ranks_.end(), [first](const auto& rank) {
    const WorkerInventory* const other = rank->adopted();
    return (first == nullptr) == (other == nullptr) && (first == nullptr || first->digest == other->digest);
  });
}

bool SimRanks::HaveAllSessions() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->has_session(); });
}

absl::Status SimRanks::status() const {
  absl::Status status = status_;
  for (const auto& rank : ranks_) status.Update(rank->status());
  return status;
}

}  // namespace quire
