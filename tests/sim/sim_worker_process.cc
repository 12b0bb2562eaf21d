// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/sim_worker_process.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "base/worker_protocol.h"

namespace quire {
namespace {

// The time that a step takes, for the loop's counters.
constexpr int64_t kMicrosPerToken = 10;

}  // namespace

class SimWorkerProcess::Client : public WorkerClient {
 public:
  explicit Client(SimWorkerProcess* process) : process_(process) {}

  void SetListener(Listener* listener) override { process_->listener_ = listener; }
  void Describe(uint64_t epoch) override {
    if (process_ != nullptr) process_->Describe(epoch);
  }
  void Open(uint64_t epoch, bool adopts) override {
    if (process_ != nullptr) process_->Open(epoch, adopts);
  }
  void Refuse(const std::string& reason) override {
    if (process_ == nullptr) return;
    process_->status_.Update(absl::InternalError(absl::StrCat("the worker was refused: ", reason)));
  }
  void Send(const StepPlan& plan) override {
    if (process_ != nullptr) process_->Send(plan);
  }
  void Probe(uint64_t epoch) override {
    if (process_ != nullptr) process_->Probe(epoch);
  }
  void Close() override {
    if (process_ != nullptr) process_->Close();
  }
  void OnManagerLost() { process_ = nullptr; }

 private:
  SimWorkerProcess* process_;
};

SimWorkerProcess::SimWorkerProcess(const SimWorker& worker, const ShadowModel& model, int rank)
    : worker_(worker), model_(model), rank_(rank) {}

std::unique_ptr<WorkerClient> SimWorkerProcess::NewClient(Hooks hooks) {
  hooks_ = std::move(hooks);
  auto client = std::make_unique<Client>(this);
  client_ = client.get();
  return client;
}

// As the worker program does: it finishes steps that it has begun, and nothing is kept after a step that fails. A
// worker that drains ends with its session.
std::vector<SequenceStart> SimWorkerProcess::OnManagerLost(int num_plans) {
  std::exchange(client_, nullptr)->OnManagerLost();
  bool has_failed = false;
  for (; num_plans > 0 && !plans_.empty() && !has_failed; --num_plans) {
    has_failed = poison_watch_.OnPlan(plans_.front()).has_value();
    if (has_failed) break;
    const absl::StatusOr<StepResult> result = Run(plans_.front());
    has_failed = !result.ok();
    if (has_failed && !may_refuse_plans_) status_.Update(result.status());
    plans_.pop_front();
  }
  std::vector<SequenceStart> lost_starts;
  for (const StepPlan& plan : std::exchange(plans_, {})) {
    lost_starts.insert(lost_starts.end(), plan.starts.begin(), plan.starts.end());
  }
  if (session_.has_value()) kept_.emplace(*std::move(session_));
  if (has_failed) kept_.reset();
  if (std::exchange(is_draining_, false)) {
    is_alive_ = false;
    kept_.reset();
  }
  session_.reset();
  adopted_.reset();
  is_connected_ = false;
  epoch_ = 0;
  closed_epoch_.reset();
  unanswered_describe_.reset();
  unanswered_open_.reset();
  unsent_.clear();
  last_result_.reset();
  lie_.reset();
  listener_ = nullptr;
  return lost_starts;
}

void SimWorkerProcess::Damage(SimDamage damage) {
  damage_ = damage;
  if (damage == SimDamage::kForgotten || damage == SimDamage::kOneForgotten) kept_.reset();
  if (damage == SimDamage::kOtherRows) kept_salt_ = 1;
}

void SimWorkerProcess::Spoil(WorkerInventory* inventory) {
  const SimDamage damage = std::exchange(damage_, SimDamage::kNothing);
  was_damaged_ = damage != SimDamage::kNothing;
  const auto draw = [&](size_t i, size_t n) {
    return static_cast<size_t>(MixBits(num_inventories_ * 1000003 + i) % std::max<size_t>(n, 1));
  };
  switch (damage) {
    case SimDamage::kNothing:
    case SimDamage::kForgotten:
    case SimDamage::kOneForgotten:
    case SimDamage::kOtherRows:
      break;
    case SimDamage::kCutRows:
      for (size_t i = 0; i < inventory->rows.size(); ++i) {
        inventory->rows.erase(inventory->rows.begin() + static_cast<std::ptrdiff_t>(i));
        has_hidden_rows_ = true;
      }
      break;
    case SimDamage::kCutLabels:
      inventory->labels.resize(inventory->labels.size() / 2);
      break;
    case SimDamage::kStaleRows:
      may_refuse_plans_ = true;
      for (WorkerInventory::Row& row : inventory->rows) {
        if (static_cast<int>(row.tokens.size()) == row.prompt_length) continue;
        row.tokens.pop_back();
        // More scores than tokens would be refused.
        row.scores.resize(std::min(row.scores.size(), row.tokens.size() - static_cast<size_t>(row.prompt_length)));
        row.num_computed = std::min(row.num_computed, static_cast<int>(row.tokens.size()));
      }
      break;
    case SimDamage::kWrongTables:
      for (size_t i = 0; i < inventory->rows.size(); ++i) {
        std::vector<BlockId>& table = inventory->rows[i].blocks;
        if (table.empty() || draw(i, 2) == 0) continue;
        table[draw(i + 1, table.size())] = BlockId{static_cast<uint32_t>(draw(i + 2, worker_.blocks))};
      }
      break;
  }
}

void SimWorkerProcess::Describe(uint64_t epoch) {
  if (epoch <= epoch_) status_.Update(absl::InternalError(absl::StrCat("epoch ", epoch, " follows ", epoch_)));
  epoch_ = epoch;
  if (!is_alive_) return listener_->OnLost(epoch, absl::UnavailableError("connection refused"));
  is_connected_ = true;
  if (is_silent_) {
    unanswered_describe_ = epoch;
  } else {
    TellDescription(epoch);
  }
}

void SimWorkerProcess::TellDescription(uint64_t epoch) {
  WorkerDescription description = worker_.Description();
  description.vocab_size = model_.vocab_size;
  description.last_epoch = greatest_epoch_;
  description.place = {.group_id = is_of_group() ? "group" : "", .rank = rank_, .size = worker_.ranks};
  listener_->OnDescribed(epoch, std::move(description));
}

void SimWorkerProcess::Open(uint64_t epoch, bool adopts) {
  if (!is_connected_) return;
  epoch_ = epoch;
  if (is_silent_) {
    unanswered_open_ = adopts;
    return;
  }
  if (epoch <= greatest_epoch_) {
    status_.Update(absl::InternalError(absl::StrCat("epoch ", epoch, " was opened after epoch ", greatest_epoch_)));
  }
  greatest_epoch_ = epoch;
  plans_.clear();
  num_sent_ = 0;
  adopted_.reset();
  was_damaged_ = may_refuse_plans_ = false;
  std::unique_ptr<WorkerInventory> inventory;
  if (adopts && HasKept()) {
    session_.emplace(*std::move(kept_));
    adopted_ = session_->MakeInventory();
    session_->BeginSession();
    if (is_of_group()) adopted_->digest = MixBits(DigestOf(*adopted_) + kept_salt_);
    inventory = std::make_unique<WorkerInventory>(*adopted_);
    ++num_inventories_;
    Spoil(inventory.get());
    if (rank_ > 0) {
      *inventory = WorkerInventory();
      inventory->epoch = adopted_->epoch;
      inventory->last_step = adopted_->last_step;
      inventory->digest = adopted_->digest;
    }
  } else {
    session_.emplace(model_, worker_.blocks, worker_.block_size, worker_.rows, worker_.host_blocks,
                     worker_.Description().groups);
    session_->Postpone(worker_.postpones);
    has_hidden_rows_ = false;
    poison_watch_.Reset();
  }
  kept_.reset();
  kept_salt_ = 0;
  listener_->OnOpened(epoch, std::move(inventory));
  if (closed_epoch_.has_value()) {
    listener_->OnLost(*std::exchange(closed_epoch_, std::nullopt), absl::CancelledError("the call was cancelled"));
  }
  if (is_draining_) listener_->OnDraining(epoch_);
}

void SimWorkerProcess::Send(const StepPlan& plan) {
  if (!is_connected_) return;  // The worker has died, and the loop does not know it yet.
  if (!session_.has_value()) status_.Update(absl::InternalError("a plan was sent without a session"));
  plans_.push_back(plan);
}

void SimWorkerProcess::Probe(uint64_t epoch) {
  if (!is_connected_ || is_silent_) return;
  if (!session_.has_value()) status_.Update(absl::InternalError("a probe was sent without a session"));
  listener_->OnProbed(epoch);
}

// As with a real connection, the loop is told about the end of a session that it has closed itself, but late: here
// when the next session has been opened. The worker keeps what it has for another manager. The loop does not adopt it.
void SimWorkerProcess::Close() {
  if (is_connected_) closed_epoch_ = epoch_;
  std::optional<ShadowWorker> left = std::exchange(session_, std::nullopt);
  EndConnection();
  if (std::exchange(is_draining_, false)) {
    is_alive_ = false;
    kept_.reset();
  } else if (left.has_value()) {
    kept_.emplace(*std::move(left));
  }
}

void SimWorkerProcess::EndConnection() {
  hooks_.on_end();
  is_connected_ = false;
  session_.reset();
  adopted_.reset();
  plans_.clear();
  unsent_.clear();
  unanswered_describe_.reset();
  unanswered_open_.reset();
}

void SimWorkerProcess::Die() {
  is_alive_ = false;
  is_draining_ = false;
  if (is_connected_) listener_->OnLost(epoch_, absl::UnavailableError("socket closed"));
  EndConnection();
  kept_.reset();
}

void SimWorkerProcess::Leave() {
  if (session_.has_value()) {
    listener_->OnLost(epoch_, absl::UnavailableError("a rank of the group was lost"));
    EndConnection();
    if (std::exchange(is_draining_, false)) is_alive_ = false;
  }
  kept_.reset();
}

void SimWorkerProcess::Start(int num_blocks) {
  if (is_alive_) return;
  is_alive_ = true;
  if (num_blocks == 0) return;
  worker_.blocks = num_blocks;
  if (worker_.other_block_size > 0) std::swap(worker_.block_size, worker_.other_block_size);
  OnOtherManager();
}

void SimWorkerProcess::Drain() {
  if (!is_alive_ || std::exchange(is_draining_, true)) return;
  if (session_.has_value() && !is_silent_) listener_->OnDraining(epoch_);
}

void SimWorkerProcess::SetSilent(bool is_silent) {
  if (std::exchange(is_silent_, is_silent) == is_silent || is_silent) return;
  if (unanswered_describe_.has_value()) TellDescription(*std::exchange(unanswered_describe_, std::nullopt));
  if (unanswered_open_.has_value()) Open(epoch_, *std::exchange(unanswered_open_, std::nullopt));
  if (session_.has_value() && is_draining_) listener_->OnDraining(epoch_);
}

absl::StatusOr<bool> SimWorkerProcess::Execute() {
  const StepPlan plan = std::move(plans_.front());
  plans_.pop_front();
  if (const auto hit = poison_watch_.OnPlan(plan); hit.has_value()) {
    FailAt(hit->first, hit->second);
    return false;
  }
  absl::StatusOr<StepResult> result = Run(plan);
  if (!result.ok() && may_refuse_plans_) {
    FailAtPlan(result.status());
    return false;
  }
  if (!result.ok()) return result.status();
  if (!result->tables.empty() && lie_.has_value()) Lie(&*result);
  if (is_of_group()) result->digest = MixBits(DigestOf(*result) + std::exchange(diverges_, false));
  if (rank_ > 0) *result = {.step = result->step, .slices = {}, .digest = result->digest};
  unsent_.push_back({*std::move(result), plan.num_tokens()});
  return true;
}

void SimWorkerProcess::SendResult() {
  last_result_ = std::move(unsent_.front().result);
  last_epoch_ = epoch_;
  const int64_t duration_us = kMicrosPerToken * unsent_.front().num_tokens;
  unsent_.pop_front();
  ++num_sent_;
  listener_->OnResult(epoch_, *last_result_, duration_us);
}

absl::StatusOr<StepResult> SimWorkerProcess::Run(const StepPlan& plan) {
  absl::StatusOr<StepResult> result = session_->Execute(plan);
  if (!result.ok()) return result;
  for (const PoisonWatch::FailedSlice& slice : poison_watch_.failed_slices()) {
    result->slices[slice.index] = session_->Fail(plan.slices[slice.index], slice.first_position);
  }
  return result;
}

// A worker that dies restarts by itself, unless it was told to stop.
void SimWorkerProcess::FailAt(const Poison& poison, SequenceId sequence) {
  hooks_.on_poison(poison, sequence);
  listener_->OnLost(epoch_, poison.is_named
                                ? WithReason(absl::InternalError("logits are not finite"), "LOGITS_NOT_FINITE",
                                             {{kFailedSequence, absl::StrCat(Value(sequence))}})
                                : absl::UnavailableError("socket closed"));
  EndConnection();
  if (std::exchange(is_draining_, false)) is_alive_ = false;
}

void SimWorkerProcess::FailAtPlan(const absl::Status& reason) {
  hooks_.on_refusal();
  listener_->OnLost(epoch_, reason);
  EndConnection();
  if (std::exchange(is_draining_, false)) is_alive_ = false;
}

void SimWorkerProcess::Lie(StepResult* result) {
  const SimAudit lie = *std::exchange(lie_, std::nullopt);
  RowTable& table = result->tables[0];
  if (lie == SimAudit::kWrongSequence || lie == SimAudit::kRepairWrongSequence) {
    table.sequence = SequenceId{Value(table.sequence) + 1'000'000};
    has_lied_ = true;
  } else if (!table.blocks.empty() && (lie == SimAudit::kWrongBlock || lie == SimAudit::kRepairWrongBlock)) {
    table.blocks[0] = BlockId{Value(table.blocks[0]) + 1};
    has_lied_ = true;
  }
}

void SimWorkerProcess::RepeatLastResult() {
  num_sent_ += last_epoch_ == epoch_;
  listener_->OnResult(last_epoch_, *last_result_, 0);
}

}  // namespace quire
