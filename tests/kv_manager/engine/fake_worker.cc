// SPDX-License-Identifier: Apache-2.0

#include "tests/kv_manager/engine/fake_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "base/worker_protocol.h"

namespace quire {

WorkerDescription SmallWorker() {
  WorkerDescription worker;
  worker.model_name = "shadow";
  worker.architecture = "Shadow";
  worker.vocab_size = 1000;
  worker.max_context_tokens = 64;
  worker.eos_token_ids = {ShadowModel::kStopToken};
  worker.block_size = 4;
  worker.num_blocks = 16;
  worker.max_sequences = 8;
  worker.max_tokens_per_step = 32;
  worker.numerics_fingerprint = "hash";
  worker.device = "test";
  return worker;
}

namespace {

absl::Status FailureAt(const Poison& poison, SequenceId sequence) {
  if (!poison.is_named) return absl::UnavailableError("unix:/run/worker.sock: socket closed");
  return WithReason(absl::InternalError(absl::StrCat("logits of sequence ", Value(sequence), " are not finite")),
                    "LOGITS_NOT_FINITE", {{kFailedSequence, absl::StrCat(Value(sequence))}});
}

}  // namespace

class FakeWorker::Client : public WorkerClient {
 public:
  explicit Client(FakeWorker* worker) : worker_(worker) {}
  ~Client() override { Close(); }

  void SetListener(Listener* listener) override {
    const MutexLock lock(&worker_->mutex_);
    worker_->listener_ = listener;
  }
  void Describe(uint64_t epoch) override {
    const MutexLock lock(&worker_->mutex_);
    worker_->epochs_.push_back(epoch);
    if (!worker_->shadow_.has_value()) {
      return worker_->listener_->OnLost(epoch, absl::UnavailableError("connection refused"));
    }
    worker_->epoch_ = epoch;
    worker_->listener_->OnDescribed(epoch, worker_->description_);
  }
  void Open(uint64_t epoch, bool adopts) override {
    const MutexLock lock(&worker_->mutex_);
    if (!worker_->epoch_.has_value()) return;
    worker_->epoch_ = epoch;
    if (worker_->holds_opening_) {
      worker_->held_opening_ = adopts;
    } else {
      worker_->Open(adopts);
    }
  }
  void Refuse(const std::string& reason) override {
    const MutexLock lock(&worker_->mutex_);
    worker_->refusals_.push_back(reason);
  }
  void Send(const StepPlan& plan) override {
    const MutexLock lock(&worker_->mutex_);
    if (!worker_->epoch_.has_value()) return;
    ++worker_->num_plans_;
    if (const auto hit = worker_->poison_watch_.OnPlan(plan); hit.has_value()) {
      worker_->listener_->OnLost(*worker_->epoch_, FailureAt(hit->first, hit->second));
      worker_->epoch_.reset();
    } else if (worker_->holds_back_) {
      worker_->held_back_.push_back({plan, worker_->poison_watch_.failed_slices()});
    } else {
      worker_->Execute({plan, worker_->poison_watch_.failed_slices()});
    }
  }
  void Probe(uint64_t epoch) override {
    const MutexLock lock(&worker_->mutex_);
    if (worker_->epoch_.has_value() && !worker_->is_stopped_) worker_->listener_->OnProbed(epoch);
  }
  void Close() override {
    const MutexLock lock(&worker_->mutex_);
    worker_->epoch_.reset();
    if (std::exchange(worker_->is_draining_, false)) worker_->shadow_.reset();
  }

 private:
  FakeWorker* const worker_;
};

FakeWorker::FakeWorker(WorkerDescription description, ShadowModel model) : model_(model) {
  Start(std::move(description));
}

std::unique_ptr<WorkerClient> FakeWorker::NewClient() {
  return std::make_unique<Client>(this);
}

void FakeWorker::Kill() {
  const MutexLock lock(&mutex_);
  shadow_.reset();
  held_back_.clear();
  if (epoch_.has_value()) listener_->OnLost(*epoch_, absl::UnavailableError("socket closed"));
  epoch_.reset();
}

void FakeWorker::EndSession(absl::Status reason) {
  const MutexLock lock(&mutex_);
  held_back_.clear();
  if (epoch_.has_value()) listener_->OnLost(*epoch_, std::move(reason));
  epoch_.reset();
}

void FakeWorker::Start(WorkerDescription description) {
  const MutexLock lock(&mutex_);
  description_ = std::move(description);
  Restart();
}

void FakeWorker::Drain() {
  const MutexLock lock(&mutex_);
  is_draining_ = true;
  if (epoch_.has_value()) listener_->OnDraining(*epoch_);
}

void FakeWorker::HoldBack() {
  const MutexLock lock(&mutex_);
  holds_back_ = true;
}

void FakeWorker::StopProcess() {
  const MutexLock lock(&mutex_);
  holds_back_ = true;
  is_stopped_ = true;
}

void FakeWorker::ContinueProcess() {
  const MutexLock lock(&mutex_);
  is_stopped_ = false;
}

void FakeWorker::FailAt(const Poison& poison) {
  const MutexLock lock(&mutex_);
  poison_watch_.Add(poison);
}

void FakeWorker::Answer() {
  const MutexLock lock(&mutex_);
  holds_back_ = false;
  for (const TakenPlan& taken : std::exchange(held_back_, {})) Execute(taken);
}

void FakeWorker::AnswerOnce() {
  const MutexLock lock(&mutex_);
  for (const TakenPlan& taken : std::exchange(held_back_, {})) Execute(taken);
}

void FakeWorker::AnswerNextPlanWrongly() {
  const MutexLock lock(&mutex_);
  answers_wrongly_ = true;
}

void FakeWorker::ReportWrongFirstBlock(BlockId block) {
  const MutexLock lock(&mutex_);
  wrong_first_block_ = block;
}

std::vector<std::string> FakeWorker::refusals() const {
  const MutexLock lock(&mutex_);
  return refusals_;
}

bool FakeWorker::is_gone() const {
  const MutexLock lock(&mutex_);
  return !shadow_.has_value();
}

absl::Status FakeWorker::error() const {
  const MutexLock lock(&mutex_);
  return error_;
}

int FakeWorker::num_plans() const {
  const MutexLock lock(&mutex_);
  return num_plans_;
}

int FakeWorker::num_adoptions() const {
  const MutexLock lock(&mutex_);
  return num_adoptions_;
}

std::vector<int> FakeWorker::plan_tokens() const {
  const MutexLock lock(&mutex_);
  return plan_tokens_;
}

void FakeWorker::ReportStepTime(int64_t us_per_token) {
  const MutexLock lock(&mutex_);
  us_per_token_ = us_per_token;
}

std::vector<uint64_t> FakeWorker::epochs() const {
  const MutexLock lock(&mutex_);
  return epochs_;
}

void FakeWorker::HoldOpening() {
  const MutexLock lock(&mutex_);
  holds_opening_ = true;
}

void FakeWorker::LetOpen() {
  const MutexLock lock(&mutex_);
  holds_opening_ = false;
  if (held_opening_.has_value()) Open(*std::exchange(held_opening_, std::nullopt));
}

bool FakeWorker::is_opening() const {
  const MutexLock lock(&mutex_);
  return held_opening_.has_value();
}

void FakeWorker::Open(bool adopts) {
  num_adoptions_ += adopts;
  std::unique_ptr<WorkerInventory> inventory;
  if (adopts && description_.keeps_rows && shadow_.has_value()) {
    inventory = std::make_unique<WorkerInventory>(shadow_->MakeInventory());
    shadow_->BeginSession();
  } else {
    Restart();
  }
  held_back_.clear();
  listener_->OnOpened(*epoch_, std::move(inventory));
}

void FakeWorker::Restart() {
  poison_watch_.Reset();
  shadow_.emplace(model_, description_.num_blocks, description_.block_size, description_.max_sequences);
}

void FakeWorker::Execute(const TakenPlan& taken) {
  const StepPlan& plan = taken.plan;
  absl::StatusOr<StepResult> result = shadow_->Execute(plan);
  if (!result.ok()) {
    error_.Update(result.status());
    return listener_->OnLost(*epoch_, result.status());
  }
  for (const PoisonWatch::FailedSlice& slice : taken.failed) {
    result->slices[slice.index] = shadow_->Fail(plan.slices[slice.index], slice.first_position);
  }
  if (std::exchange(answers_wrongly_, false)) result->step = StepId{Value(plan.step) + 1};
  if (!result->tables.empty() && wrong_first_block_.has_value()) {
    result->tables[0].blocks[0] = *std::exchange(wrong_first_block_, std::nullopt);
  }
  plan_tokens_.push_back(plan.num_tokens());
  listener_->OnResult(*epoch_, *std::move(result), us_per_token_ * plan.num_tokens());
}

}  // namespace quire
