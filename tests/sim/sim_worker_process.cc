#include "tests/sim/sim_worker_process.h"

#include <algorithm>
#include <utility>

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
  void Describe(uint64_t epoch) override { process_->Describe(epoch); }
  void Open(uint64_t epoch, bool /*adopts*/) override { process_->Open(epoch); }
  void Refuse(const std::string& reason) override {
    process_->status_.Update(absl::InternalError(absl::StrCat("the worker was refused: ", reason)));
  }
  void Send(const StepPlan& plan) override { process_->Send(plan); }
  void Probe(uint64_t epoch) override { process_->Probe(epoch); }
  void Close() override { process_->Close(); }

 private:
  SimWorkerProcess* const process_;
};

SimWorkerProcess::SimWorkerProcess(const SimWorker& worker, const ShadowModel& model, Hooks hooks)
    : worker_(worker), model_(model), hooks_(std::move(hooks)) {}

WorkerClient::Listener* SimWorkerProcess::Tell() {
  hooks_.on_message();
  return listener_;
}

std::unique_ptr<WorkerClient> SimWorkerProcess::NewClient() {
  return std::make_unique<Client>(this);
}

void SimWorkerProcess::Describe(uint64_t epoch) {
  if (epoch <= epoch_) status_.Update(absl::InternalError(absl::StrCat("epoch ", epoch, " follows ", epoch_)));
  epoch_ = epoch;
  if (!is_alive_) return Tell()->OnLost(epoch, absl::UnavailableError("connection refused"));
  is_connected_ = true;
  if (is_silent_) {
    unanswered_describe_ = epoch;
    return;
  }
  WorkerDescription description = worker_.Description();
  description.last_epoch = greatest_epoch_;
  Tell()->OnDescribed(epoch, std::move(description));
  hooks_.on_describe();
}

void SimWorkerProcess::Open(uint64_t epoch) {
  if (!is_connected_) return;
  epoch_ = epoch;
  if (is_silent_) {
    has_unanswered_open_ = true;
    return;
  }
  if (epoch <= greatest_epoch_) {
    status_.Update(absl::InternalError(absl::StrCat("epoch ", epoch, " was opened after epoch ", greatest_epoch_)));
  }
  greatest_epoch_ = epoch;
  session_.emplace(model_, worker_.blocks, worker_.block_size, worker_.rows, worker_.host_blocks);
  plans_.clear();
  Tell()->OnOpened(epoch, nullptr);
  if (closed_epoch_.has_value()) {
    Tell()->OnLost(*std::exchange(closed_epoch_, std::nullopt), absl::CancelledError("the call was cancelled"));
  }
  if (is_draining_) TellDrain();
}

void SimWorkerProcess::Send(const StepPlan& plan) {
  hooks_.on_plan(plan);
  if (!is_connected_) return;  // The worker has died, and the loop does not know it yet.
  if (!session_.has_value()) status_.Update(absl::InternalError("a plan was sent without a session"));
  plans_.push_back(plan);
}

void SimWorkerProcess::Probe(uint64_t epoch) {
  if (!is_connected_ || is_silent_) return;
  if (!session_.has_value()) status_.Update(absl::InternalError("a probe was sent without a session"));
  Tell()->OnProbed(epoch);
}

// As with a real connection, the loop is told about the end of a session that it has closed itself, but late: here
// when the next session has been opened.
void SimWorkerProcess::Close() {
  if (is_connected_) closed_epoch_ = epoch_;
  EndConnection();
  if (!is_draining_) return;
  is_alive_ = false;
  is_draining_ = false;
}

void SimWorkerProcess::EndConnection() {
  hooks_.on_end();
  is_connected_ = false;
  session_.reset();
  poison_watch_.Reset();
  plans_.clear();
  unanswered_describe_.reset();
  has_unanswered_open_ = false;
}

void SimWorkerProcess::Die() {
  is_alive_ = false;
  is_draining_ = false;
  if (is_connected_) Tell()->OnLost(epoch_, absl::UnavailableError("socket closed"));
  EndConnection();
}

void SimWorkerProcess::Start(int num_blocks) {
  if (is_alive_) return;
  is_alive_ = true;
  if (num_blocks == 0) return;
  worker_.blocks = num_blocks;
  if (worker_.other_block_size > 0) std::swap(worker_.block_size, worker_.other_block_size);
  greatest_epoch_ += 3;  // Another manager has had this worker.
}

void SimWorkerProcess::Drain() {
  if (!is_alive_ || std::exchange(is_draining_, true)) return;
  if (session_.has_value() && !is_silent_) TellDrain();
}

void SimWorkerProcess::TellDrain() {
  Tell()->OnDraining(epoch_);
  hooks_.on_drain();
}

void SimWorkerProcess::SetSilent(bool is_silent) {
  if (std::exchange(is_silent_, is_silent) == is_silent || is_silent) return;
  if (unanswered_describe_.has_value()) {
    WorkerDescription description = worker_.Description();
    description.last_epoch = greatest_epoch_;
    Tell()->OnDescribed(*std::exchange(unanswered_describe_, std::nullopt), std::move(description));
    hooks_.on_describe();
  }
  if (std::exchange(has_unanswered_open_, false)) Open(epoch_);
  if (session_.has_value() && is_draining_) TellDrain();
}

absl::StatusOr<bool> SimWorkerProcess::Answer() {
  if (plans_.empty() || is_silent_) return false;
  const StepPlan plan = std::move(plans_.front());
  plans_.pop_front();
  if (const auto hit = poison_watch_.OnPlan(plan); hit.has_value()) {
    FailAt(hit->first, hit->second);
    return false;
  }
  absl::StatusOr<StepResult> result = session_->Execute(plan);
  if (!result.ok()) return result.status();
  if (!result->tables.empty() && lie_.has_value()) Lie(&*result);
  last_result_ = *result;
  last_epoch_ = epoch_;
  Tell()->OnResult(epoch_, *std::move(result), kMicrosPerToken * plan.num_tokens());
  return true;
}

// A worker that dies restarts by itself, unless it was told to stop.
void SimWorkerProcess::FailAt(const Poison& poison, SequenceId sequence) {
  hooks_.on_poison(poison, sequence);
  Tell()->OnLost(epoch_, poison.is_named ? WithReason(absl::InternalError("logits are not finite"), "LOGITS_NOT_FINITE",
                                                      {{kFailedSequence, absl::StrCat(Value(sequence))}})
                                         : absl::UnavailableError("socket closed"));
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

bool SimWorkerProcess::RepeatLastResult() {
  if (!last_result_.has_value()) return false;
  Tell()->OnResult(last_epoch_, *last_result_, 0);
  return true;
}

}  // namespace quire
