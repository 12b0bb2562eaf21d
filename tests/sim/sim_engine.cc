#include "tests/sim/sim_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/num_blocks.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/engine/table_audit.h"
#include "tests/sim/violation.h"

namespace quire {
namespace {

// The blocks of a pool with at most this many blocks are counted after every call. A pool that is n times as large is
// counted after every n calls.
constexpr int kBlocksPerCheck = 64;
// The number of rounds until a worker that answers at once has joined.
constexpr int kRoundsToJoin = 3;
// The longest time that an audit may wait for a step.
constexpr int64_t kAuditPatienceUs = 10 * kMicrosPerEvent;

// Whether a request that has ended with this error was in the queue and left it for another one.
bool IsDisplacement(const absl::Status& failure) {
  return absl::IsResourceExhausted(failure) && absl::StrContains(failure.message(), "gave its place");
}

// The blocks that the group holds while it runs, or must get to run. Its sequences share the whole blocks of the
// prompt.
int64_t BlocksOf(const SequenceGroup& group, int block_size) {
  const Request& request = group.request();
  const int64_t num_shared = static_cast<int64_t>(request.prompt.size()) / block_size;
  int64_t num_own = group.num_rows() - group.num_sequences();  // For samples that are forked later.
  for (const auto& sequence : group.sequences()) {
    const int64_t num_all = (sequence->num_known_tokens() + block_size - 1) / block_size;
    num_own += std::max<int64_t>(num_all - num_shared, 0);
  }
  return std::min(num_shared + num_own, MostBlocks(request, block_size));
}

}  // namespace

SimEngine::SimEngine(const SimWorker& worker, const ShadowModel& model, const ManualClock* clock)
    : options_(worker),
      model_(model),
      clock_(clock),
      oracle_(worker),
      process_(worker, model,
               {.on_message = [this] { has_news_ = true; },
                .on_describe =
                    [this] {
                      // A drain that was told in an attempt without a session says nothing about the next one.
                      is_drain_first_ = false;
                      OnDescribe();
                    },
                .on_drain =
                    [this] {
                      oracle_.OnDrainPosted();
                      is_drain_first_ |= !oracle_.is_loss_due();
                    },
                .on_end = [this] { oracle_.OnConnectionEnded(); },
                .on_plan = [this](const StepPlan& plan) { OnPlan(plan); },
                .on_poison = [this](const Poison& poison, SequenceId sequence) { OnPoison(poison, sequence); }}) {
  loop_ = std::make_unique<StepLoop>(
      worker.LoopOptions(), process_.NewClient(),
      StepLoopHooks{.admit_worker = [this](const WorkerDescription&) { return Admit(); },
                    .on_change = [] {},
                    .make_blocks = [this](const PagedBlockManagerOptions& options) { return MakeBlocks(options); }},
      clock);
  for (int i = 0; i < kRoundsToJoin; ++i) status_.Update(RunRound());
  if (!loop_->status()->is_ready) Complain("the worker has not joined");
}

template <typename... Parts>
void SimEngine::Complain(const Parts&... parts) {
  status_.Update(Violation(parts...));
}

bool SimEngine::IsRefusal(const absl::Status& failure) {
  if (IsDisplacement(failure)) return false;
  if (absl::StrContains(failure.message(), "came back with another pool")) return false;
  return absl::IsInvalidArgument(failure) || absl::IsFailedPrecondition(failure) ||
         absl::IsResourceExhausted(failure) || absl::StrContains(failure.message(), "is not connected");
}

SimEngine::~SimEngine() {
  loop_.reset();  // Its end still calls the hooks.
}

GenerationId SimEngine::Admit() {
  if (std::exchange(generation_, next_generation_) != next_generation_) oracle_.OnGenerationReplaced();
  return generation_;
}

// Called while a pool is made: the loop still has the old one.
std::unique_ptr<PagedBlockManager> SimEngine::MakeBlocks(const PagedBlockManagerOptions& options) {
  if (scheduler_ != nullptr) {
    AddPool(&report_);
    ++report_.pool_changes;
  }
  oracle_.OnPoolReplaced();
  options_.blocks = options.num_blocks;
  options_.block_size = options.block_size;
  AuditedBlocks::Observer* const observer = this;
  auto blocks = std::make_unique<AuditedBlocks>(options, observer);
  blocks_ = blocks.get();
  index_ = options.index;
  scheduler_ = nullptr;
  auto audit = std::make_unique<PlanAudit>(options_, blocks_);
  if (audit_ != nullptr) audit->TakeOver(*audit_);
  audit_ = std::move(audit);
  num_probed_tokens_ = 0;
  has_searched_ = false;
  return blocks;
}

// The question lies in the inbox behind the description, so it sees the scheduler of the pool that is described.
void SimEngine::OnDescribe() {
  status_.Update(loop_->Ask([this](const LoopView& view) {
    if (view.scheduler == nullptr || view.scheduler == scheduler_) return;
    scheduler_ = view.scheduler;
    if (options_.token_budget > 0) scheduler_->SetTokenBudget(options_.token_budget);
  }));
}

void SimEngine::OnPoison(const Poison& poison, SequenceId sequence) {
  if (!oracle_.is_loss_due() && poison.is_named) named_ = sequence;
  oracle_.OnLossPosted();
  ++report_.losses;
}

bool SimEngine::IsTooLarge(const Request& request) const {
  return NumRows(request) > options_.rows || MostBlocks(request, options_.block_size) > options_.blocks;
}

void SimEngine::Post(Posted posted) {
  posted_.push_back(std::move(posted));
  has_news_ = true;
}

absl::Status SimEngine::Submit(std::shared_ptr<SimCaller> caller) {
  const Request& request = caller->request();
  ++report_.events;
  PromptHashes hashes(request.cache_salt, request.prompt);
  const int num_requests = loop_->load().num_requests;
  QUIRE_RETURN_IF_ERROR(loop_->Submit(request, caller, &hashes));
  if (loop_->load().num_requests != num_requests + 1) return Violation("a submitted request is no load");
  if (caller->poison().has_value()) process_.AddPoison(*caller->poison());
  Post({.kind = Posted::Kind::kSubmit, .caller = std::move(caller)});
  return absl::OkStatus();
}

void SimEngine::Cancel(SimCaller* caller) {
  ++report_.events;
  loop_->Cancel(caller->request().id);
  if (caller->has_ended() || caller->is_cancel_posted()) return;
  caller->OnCancelPosted();
  Post({.kind = Posted::Kind::kCancel, .caller = caller->shared_from_this()});
}

// Does the same as the token stream: it ends samples one by one, and the request with the last sample.
void SimEngine::CancelSample(SimCaller* caller, int sample_index) {
  if (!caller->MayEndSample(sample_index) || caller->is_cancel_posted()) return;
  ++report_.events;
  caller->EndSample(sample_index);
  if (caller->WantsEnd()) {
    PostWantedEnd(caller);
  } else {
    loop_->CancelSample(caller->request().id, sample_index);
    Post({.kind = Posted::Kind::kSampleEnd, .caller = caller->shared_from_this(), .sample_index = sample_index});
  }
}

void SimEngine::PostWantedEnd(SimCaller* caller) {
  loop_->Cancel(caller->request().id, FinishReason::kStopToken);
  caller->OnCancelPosted();
  Post({.kind = Posted::Kind::kStop, .caller = caller->shared_from_this()});
}

absl::Status SimEngine::SetDraining(bool is_draining) {
  is_drained_by_operator_ = is_draining;
  loop_->SetDrainedByOperator(is_draining);
  if (loop_->load().is_drained_by_operator != is_draining)
    return Violation("the load says is_drained_by_operator: ", !is_draining);
  if (is_draining && !loop_->status()->is_draining) return Violation("the status does not tell of the drain");
  return absl::OkStatus();
}

void SimEngine::Ask() {
  ++num_unanswered_questions_;
  has_news_ = true;
  status_.Update(loop_->Ask([this](const LoopView& view) {
    --num_unanswered_questions_;
    if (view.scheduler == nullptr) return;  // The engine ends after a contradiction.
    if (view.now_us != clock_->NowMicros() || view.blocks != blocks_) Complain("a question sees another moment");
    TakePosted(/*is_until_result=*/false);
    for (const auto& [request, live] : callers_) {
      if (live.caller->has_ended() || live.caller->has_left_scheduler()) continue;
      if (view.scheduler->FindGroup(request) == nullptr) {
        Complain("request ", Value(request), " is live and unknown to the scheduler");
      }
    }
  }));
}

void SimEngine::Audit(SimAudit kind) {
  if (std::exchange(is_audit_pending_, true)) return;
  const bool repairs =
      kind == SimAudit::kRepair || kind == SimAudit::kRepairWrongBlock || kind == SimAudit::kRepairWrongSequence;
  audit_deadline_us_ = clock_->NowMicros() + kAuditPatienceUs;
  has_news_ = true;
  process_.TellTables(kind);
  status_.Update(loop_->Ask([this, kind, repairs](const LoopView& view) {
    view.tables->Ask(audit_deadline_us_, repairs, [this, kind](const TableAudit& audit) { CheckAudit(audit, kind); });
  }));
}

void SimEngine::CheckAudit(const TableAudit& audit, SimAudit kind) {
  if (!std::exchange(is_audit_pending_, false)) Complain("an audit was answered twice");
  const bool is_early = absl::IsDeadlineExceeded(audit.not_compared) && !oracle_.has_session_ended() &&
                        clock_->NowMicros() < audit_deadline_us_;
  audit_deadline_us_ = kNever;
  report_.audits += audit.num_rows > 0;
  const bool has_lied = process_.has_lied() && audit.num_rows > 0;
  process_.TellTables(SimAudit::kCompare);
  const bool is_of_sequence = kind == SimAudit::kWrongSequence || kind == SimAudit::kRepairWrongSequence;
  const bool repairs = kind == SimAudit::kRepairWrongBlock || kind == SimAudit::kRepairWrongSequence;
  // An entry that the worker was not told yet is not compared. Only a prefix cache changes entries after they are told.
  const bool may_be_unseen = !is_of_sequence && options_.prefix_cache != 0;
  if (is_early) Complain("an audit was given up before its time");
  if (audit.num_differences > has_lied || audit.num_differences + may_be_unseen < has_lied) {
    Complain("an audit has found ", audit.num_differences, " differences, the worker has told ", has_lied, " lies");
  }
  if (audit.num_differences == 0) return;
  const auto expected = is_of_sequence ? RowDifference::Kind::kSequence : RowDifference::Kind::kBlock;
  if (audit.differences.size() != 1 || audit.differences[0].kind != expected || audit.is_repaired != repairs) {
    Complain("an audit tells of another difference than the worker's lie");
  }
  if (is_of_sequence && repairs) {
    oracle_.OnUnrepairable();
    is_unrepairable_ = true;
  }
}

absl::Status SimEngine::RunRound() {
  has_news_ = false;
  was_plan_empty_ = false;
  has_changed_ |= next_deadline_us_ <= clock_->NowMicros();
  must_fail_.clear();
  num_taken_ = posted_.size();
  num_waiting_ = loop_->status()->waiting_requests;
  waiting_by_tenant_.clear();
  new_by_tenant_.clear();
  to_displace_.clear();
  displaced_.clear();
  if (scheduler_ != nullptr) {
    scheduler_->ForEachGroup([this](const SequenceGroup& group) {
      if (group.is_running()) return;
      ++waiting_by_tenant_[group.request().tenant];
      new_by_tenant_[group.request().tenant] += !group.progress().has_started;
    });
  }
  // A cancel can shorten the queue, and so can the result of a request that was preempted meanwhile.
  is_queue_known_ = std::all_of(posted_.begin(), posted_.end(),
                                [](const Posted& posted) { return posted.kind == Posted::Kind::kSubmit; }) &&
                    !oracle_.is_loss_due();
  oracle_.BeginRound(clock_->NowMicros(), process_.is_draining());
  wake_us_ = loop_->RunOnce();
  if (is_planning_) EndPlan({});
  TakePosted(/*is_until_result=*/false);
  if (blocks_ != nullptr) DropEnded();
  QUIRE_RETURN_IF_ERROR(CheckRound());
  QUIRE_RETURN_IF_ERROR(CheckDisplaced());
  for (SimCaller* const caller : wanting_end_) PostWantedEnd(caller);
  QUIRE_RETURN_IF_ERROR(status_);
  // A preempted request must not enter while its results are in flight. The scheduler makes another plan before these
  // results come only if it sends no plan now and something else, such as a submission, wakes the loop. So the engine
  // runs the next round at once.
  const bool has_only_preempted = was_plan_empty_ && scheduler_->counts().preemptions > before_plan_.preemptions;
  return has_only_preempted ? RunRound() : absl::OkStatus();
}

void SimEngine::TakePosted(bool is_until_result) {
  // What the last step has ended is known, and the events behind its result are not taken yet.
  Settle();
  for (bool is_over = false; num_taken_ > 0 && !is_over; --num_taken_) {
    const Posted posted = std::move(posted_.front());
    has_changed_ = true;
    posted_.pop_front();
    switch (posted.kind) {
      case Posted::Kind::kSubmit:
        OnSubmissionTaken(posted.caller);
        break;
      case Posted::Kind::kCancel:
        report_.cancelled += posted.caller->OnCancelTaken();
        break;
      case Posted::Kind::kStop:
        posted.caller->OnCancelTaken();
        break;
      case Posted::Kind::kSampleEnd:
        posted.caller->OnSampleEndTaken(posted.sample_index);
        break;
      case Posted::Kind::kResult:
        is_over = is_until_result;
        break;
    }
  }
}

absl::StatusCode SimEngine::ExpectedAdmission(const Request& request) const {
  const int64_t num_tokens = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  return num_tokens > options_.context ? absl::StatusCode::kInvalidArgument
         : IsTooLarge(request)         ? absl::StatusCode::kFailedPrecondition
         : MostBlocks(request, options_.block_size) > options_.MaxBlocksOf(request.tenant)
             ? absl::StatusCode::kFailedPrecondition
         : num_waiting_ >= options_.queue && !ExpectedLoser(request.tenant).has_value()
             ? absl::StatusCode::kResourceExhausted
             : absl::StatusCode::kOk;
}

// No tenant is refused while another one has more requests in the queue, by weight, than this one has with the new one,
// and one of these requests is new.
std::optional<std::string> SimEngine::ExpectedLoser(const std::string& tenant) const {
  const auto own = waiting_by_tenant_.find(tenant);
  double most = ((own == waiting_by_tenant_.end() ? 0 : own->second) + 1) / options_.WeightOf(tenant);
  std::optional<std::string> loser;
  for (const auto& [name, num_waiting] : waiting_by_tenant_) {
    const double load = num_waiting / options_.WeightOf(name);
    if (name == tenant || load <= most || new_by_tenant_.at(name) == 0) continue;
    most = load;
    loser = name;
  }
  return loser;
}

absl::Status SimEngine::CheckDisplaced() {
  if (!is_queue_known_ || oracle_.has_session_ended() || oracle_.was_pool_replaced()) return absl::OkStatus();
  for (const char* tenant : {"0", "1", "2"}) {
    if (displaced_[tenant] != to_displace_[tenant]) {
      return Violation(displaced_[tenant], " requests of tenant ", tenant, " have left the queue for others, not ",
                       to_displace_[tenant]);
    }
  }
  return absl::OkStatus();
}

void SimEngine::OnSubmissionTaken(const std::shared_ptr<SimCaller>& caller) {
  const Request& request = caller->request();
  const absl::Status& failure = caller->failure();
  const bool is_refused = IsRefusal(failure);
  const bool is_by_scheduler = !absl::IsUnavailable(failure) && !oracle_.was_pool_replaced();
  const absl::StatusCode expected = ExpectedAdmission(request);
  const absl::StatusCode found = is_refused ? failure.code() : absl::StatusCode::kOk;
  const bool is_queue_known = is_queue_known_ && !oracle_.has_session_ended();
  const bool is_of_queue = absl::IsResourceExhausted(failure) || expected == absl::StatusCode::kResourceExhausted;
  const auto reason = ReasonOf(failure);
  const bool is_overloaded = reason.has_value() && reason->word == "OVERLOADED";
  if (is_overloaded && (request.deadline_us == kNever || num_live() == 0)) {
    Complain("request ", Value(request.id), " could have waited: ", failure.ToString());
  }
  if (is_by_scheduler && !is_overloaded && found != expected && (is_queue_known || !is_of_queue)) {
    Complain("submission of request ", Value(request.id), ": ", failure.ToString());
  }
  if (is_refused) {
    if (absl::IsUnavailable(failure))
      status_.Update(oracle_.CheckFailure(failure, kNever, /*has_started=*/false, /*is_ready=*/false,
                                          /*is_too_large=*/false));
    ++report_.refused;
    return;
  }
  if (request.generation != generation_) Complain("request ", Value(request.id), " has come to another generation");
  if (const auto loser = ExpectedLoser(request.tenant); num_waiting_ >= options_.queue && loser.has_value()) {
    --waiting_by_tenant_[*loser];
    --new_by_tenant_[*loser];
    ++to_displace_[*loser];
    --num_waiting_;
  }
  ++waiting_by_tenant_[request.tenant];
  ++new_by_tenant_[request.tenant];
  ++num_waiting_;
  ++report_.requests;
  report_.searches += request.beam.has_value();
  has_searched_ |= request.beam.has_value();
  audit_->OnSubmitted(request);
  blame_.OnSubmitted(request.id);
  callers_.emplace(request.id, Live{caller});
}

void SimEngine::OnStepCommitted() {
  ++report_.events;
  TakePosted(/*is_until_result=*/true);
  oracle_.OnCommitted();
  blame_.OnCommitted([this](RequestId request, int sample) { return IsSampleLive(request, sample); });
}

void SimEngine::OnStepsAbandoned() {
  ++report_.events;
  audit_->OnAbandoned();
  has_changed_ = true;
  int num_live = 0;
  for (const auto& [request, live] : callers_) {
    if (live.caller->has_ended()) {
      blame_.OnEnded(request);
      continue;
    }
    ++num_live;
    if (live.caller->has_left_scheduler()) blame_.OnEnded(request);
  }
  oracle_.OnSessionEnded(scheduler_->counts().running, num_live);
  Settle();
  must_fail_ = blame_.OnSessionEnded(is_drain_first_ || is_unrepairable_, named_, [this](RequestId request) {
    const auto live = callers_.find(request);
    return live != callers_.end() && live->second.caller->num_tokens() > 0;
  });
  is_drain_first_ = false;
  is_unrepairable_ = false;
  named_.reset();
}

void SimEngine::OnBeginStep() {
  if (is_planning_) return;  // The plan before was empty, or was not sent and is made again.
  is_planning_ = true;
  ++report_.events;
  TakePosted(/*is_until_result=*/false);
  DropEnded();
  status_.Update(CheckBlocks());
  audit_->OnReleased(blocks_->TakeReleased());
  before_plan_ = scheduler_->counts();
  blocks_of_.clear();
  scheduler_->ForEachGroup(
      [this](const SequenceGroup& group) { blocks_of_[group.id()] = BlocksOf(group, options_.block_size); });
}

void SimEngine::OnPlan(const StepPlan& plan) {
  if (!is_planning_) return Complain("a plan was sent that was not made");
  EndPlan(plan);
  oracle_.OnPlanSent();
  status_.Update(blame_.OnPlan(SlicesOf(plan)));
  if (plan.wants_tables) audit_deadline_us_ = kNever;  // The audit waits for the plan's result.
  Digest(plan);
  ++report_.plans;
  report_.events += static_cast<int64_t>(plan.slices.size());
  num_sent_copies_ += static_cast<int64_t>(plan.copies.size());
  num_crowded_plans_ += scheduler_->counts().waiting > 0;
}

BlameOracle::Slices SimEngine::SlicesOf(const StepPlan& plan) const {
  BlameOracle::Slices slices;
  for (const SequenceSlice& slice : plan.slices) {
    const Scheduler::Occupant occupant = scheduler_->OccupantOf(slice.row);
    if (occupant.sequence == nullptr) continue;
    const SequenceGroup& group = *scheduler_->FindGroup(occupant.request);
    BlameOracle::Member member{0, occupant.sequence->sample_index()};
    if (group.beam_search() != nullptr) {
      const auto place = std::find_if(group.sequences().begin(), group.sequences().end(),
                                      [&](const auto& beam) { return beam.get() == occupant.sequence; });
      member = {occupant.sequence->num_known_tokens(), static_cast<int>(place - group.sequences().begin())};
    }
    slices.push_back({occupant.request, member, occupant.sequence->id(), slice.first_position + slice.num_tokens,
                      slice.num_tokens == 0});
  }
  return slices;
}

bool SimEngine::IsSampleLive(RequestId request, int sample_index) const {
  const auto it = callers_.find(request);
  return it != callers_.end() && !it->second.caller->has_sample_ended(sample_index);
}

void SimEngine::Settle() {
  blame_.Settle([this](RequestId request, int sample) { return IsSampleLive(request, sample); });
}

void SimEngine::EndPlan(const StepPlan& plan) {
  is_planning_ = false;
  was_plan_empty_ = plan.empty();
  status_.Update(blocks_->status());
  status_.Update(audit_->Check(plan, before_plan_, scheduler_->counts(), blocks_->TakeReleased(), blocks_of_));
  has_changed_ = true;
  status_.Update(CheckBlocks());
}

void SimEngine::DropEnded() {
  const bool is_ready = loop_->status()->is_ready;
  num_wanted_blocks_ = 0;
  next_deadline_us_ = kNever;
  wanting_end_.clear();
  for (auto it = callers_.begin(); it != callers_.end();) {
    const SimCaller& caller = *it->second.caller;
    const Request& request = caller.request();
    status_.Update(caller.status());
    if (caller.has_started() && !std::exchange(it->second.is_start_checked, true) &&
        caller.num_cached_tokens() != audit_->first_position(request.id)) {
      Complain("request ", Value(request.id), " began at position ", audit_->first_position(request.id), " with ",
               caller.num_cached_tokens(), " cached tokens");
    }
    if (caller.has_ended() || caller.has_left_scheduler()) {
      audit_->OnEnded(request.id);
      blame_.OnEnded(request.id);
    }
    if (caller.has_ended()) {
      if (IsDisplacement(caller.failure())) {
        if (caller.has_started())
          Complain("request ", Value(request.id), " has started and left the queue for another");
        ++report_.displaced;
        ++displaced_[request.tenant];
      } else if (!caller.failure().ok()) {
        ++(absl::IsDeadlineExceeded(caller.failure()) ? report_.expired : report_.failed);
        const bool is_convicted = must_fail_.contains(request.id) && absl::IsInternal(caller.failure());
        report_.convicted += is_convicted;
        report_.convicted_in_part += is_convicted && caller.poison().has_value() && caller.poison()->sample.has_value();
        if (!is_convicted) {
          status_.Update(oracle_.CheckFailure(caller.failure(), request.deadline_us, caller.has_started(), is_ready,
                                              IsTooLarge(request)));
        }
      }
      it = callers_.erase(it);
      continue;
    }
    if (caller.WantsEnd()) wanting_end_.push_back(it->second.caller.get());
    if (!caller.has_started()) {
      num_wanted_blocks_ += NumBlocksFor(static_cast<int>(request.prompt.size()) + 1, options_.block_size);
    }
    next_deadline_us_ = std::min(next_deadline_us_, request.deadline_us);
    ++it;
  }
}

absl::Status SimEngine::CheckRound() {
  QUIRE_RETURN_IF_ERROR(status_);
  QUIRE_RETURN_IF_ERROR(process_.status());
  const std::shared_ptr<const WorkerStatus> status = loop_->status();
  const WorkerLoad load = loop_->load();
  QUIRE_RETURN_IF_ERROR(oracle_.EndRound(*status, load, num_live()));
  if (num_unanswered_questions_ != 0) return Violation(num_unanswered_questions_, " questions were not answered");
  const int64_t now_us = clock_->NowMicros();
  if (oracle_.has_session_ended() && is_audit_pending_) return Violation("an audit outlives the session");
  if (audit_deadline_us_ <= now_us) return Violation("an audit waits beyond its deadline");
  for (const RequestId request : must_fail_) {
    if (callers_.contains(request)) return Violation("request ", Value(request), " makes its worker fail and lives on");
  }
  if (next_deadline_us_ <= now_us) return Violation("a request outlives its deadline");
  if (wake_us_ > std::min(next_deadline_us_, audit_deadline_us_))
    return Violation("the loop sleeps through a deadline");
  if (blocks_ == nullptr) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(CheckLoad(*status, load));
  QUIRE_RETURN_IF_ERROR(blocks_->status());
  const bool is_stuck = status->is_ready && was_plan_empty_ && status->num_plans_in_flight == 0 &&
                        std::any_of(callers_.begin(), callers_.end(),
                                    [](const auto& entry) { return !entry.second.caller->has_left_scheduler(); });
  return is_stuck ? ExplainStall() : CheckBlocks();
}

absl::Status SimEngine::CheckLoad(const WorkerStatus& status, const WorkerLoad& load) const {
  if (load.num_requests != num_live()) return Violation("the load has ", load.num_requests, " of ", num_live());
  if (load.wanted_blocks != num_wanted_blocks_) {
    return Violation("the load wants ", load.wanted_blocks, " blocks, the requests ", num_wanted_blocks_);
  }
  if (load.num_free_blocks != blocks_->num_free_blocks() || load.num_blocks != options_.blocks) {
    return Violation("the load has ", load.num_free_blocks, " free blocks of ", load.num_blocks, ", the pool ",
                     blocks_->num_free_blocks(), " of ", options_.blocks);
  }
  if (status.is_draining != (is_drained_by_operator_ || oracle_.is_worker_draining())) {
    return Violation("the status says is_draining: ", status.is_draining);
  }
  if (scheduler_ == nullptr) return absl::OkStatus();
  const SchedulerCounts counts = scheduler_->counts();
  if (status.waiting_requests != counts.waiting || status.running_requests != counts.running ||
      status.swapped_requests != counts.swapped || status.blocks.used != blocks_->counts().used) {
    return Violation("the status is not that of the scheduler");
  }
  if ((counts.waiting == 0) != (counts.waiting_tokens == 0)) {
    return Violation(counts.waiting, " requests wait with ", counts.waiting_tokens, " tokens");
  }
  return absl::OkStatus();
}

absl::Status SimEngine::ExplainStall() {
  std::string text = "nothing runs, all requests wait:";
  for (const auto& [request, live] : callers_) {
    const std::optional<WaitReason> reason = scheduler_->ExplainWait(request);
    if (!reason.has_value()) return Violation("request ", Value(request), " is live and unknown to the scheduler");
    absl::StrAppend(&text, " request ", Value(request), " for reason ", static_cast<int>(reason->kind), ", ",
                    reason->num_blocks, " of ", reason->num_free_blocks, " free blocks;");
  }
  return Violation(text);
}

absl::Status SimEngine::CheckBlocks() {
  if (!std::exchange(has_changed_, false)) return absl::OkStatus();
  if (++num_unchecked_ * kBlocksPerCheck < options_.blocks) return absl::OkStatus();
  num_unchecked_ = 0;
  ++report_.checks;
  return blocks_->CheckAll();
}

absl::Status SimEngine::Answer() {
  const absl::StatusOr<bool> has_answered = process_.Answer();
  if (!has_answered.ok()) return has_answered.status();
  if (*has_answered) Post({.kind = Posted::Kind::kResult});
  return absl::OkStatus();
}

void SimEngine::Lose() {
  if (process_.has_session()) oracle_.OnLossPosted();
  report_.losses += process_.has_session();
  has_news_ |= process_.is_alive();
  process_.Die();
}

void SimEngine::Return(int num_blocks) {
  process_.Start(num_blocks);
}

void SimEngine::Drain() {
  report_.drains += process_.has_session();
  process_.Drain();
  has_news_ = true;
}

void SimEngine::SetSilent(bool is_silent) {
  process_.SetSilent(is_silent);
  has_news_ = true;
}

void SimEngine::RepeatLastResult() {
  if (!process_.RepeatLastResult()) return;
  has_news_ = true;
  if (process_.has_session() && process_.last_result_epoch() == process_.epoch()) oracle_.OnLossPosted();
}

absl::Status SimEngine::Probe(const std::string& salt, std::vector<TokenId> tokens, std::set<BlockId>* found) {
  const std::shared_ptr<const WorkerStatus> status = loop_->status();
  const bool is_of_session = process_.has_session() && process_.epoch() == status->epoch;
  if (!status->is_ready || status->num_plans_in_flight > 0 || !is_of_session) return absl::OkStatus();
  tokens.push_back(-1);  // The prefix cache is never searched for the last token.
  const PrefixHit hit = blocks_->FindPrefix(salt, tokens);
  const SequenceId sequence{++probe_};
  blocks_->AdoptPrefix(sequence, salt, tokens, hit.num_tokens);
  const absl::Span<const BlockId> table = blocks_->Table(sequence);
  const absl::Status slots = process_.memory().CheckSlots(table, absl::MakeConstSpan(tokens).first(hit.num_tokens));
  if (!slots.ok()) return Violation("the cache with salt '", salt, "': ", slots.message());
  found->insert(table.begin(), table.end());
  report_.probed_blocks += static_cast<int64_t>(table.size());
  num_probed_tokens_ += hit.num_tokens;
  blocks_->Free(sequence);
  if (index_ == nullptr) return blocks_->status();
  PromptHashes hashes(salt, tokens);
  const int num_indexed = index_->NumTokens(&hashes);
  const bool is_nothing_expected = loop_->load().num_requests == 0;
  if (is_nothing_expected ? num_indexed != hit.num_block_tokens : num_indexed < hit.num_block_tokens) {
    return Violation(hit.num_block_tokens, " tokens are cached, ", num_indexed, " by the index");
  }
  return blocks_->status();
}

bool SimEngine::is_idle() const {
  const std::shared_ptr<const WorkerStatus> status = loop_->status();
  return status->is_ready && status->num_plans_in_flight == 0 && !process_.is_draining() && posted_.empty() &&
         !has_news_ && callers_.empty();
}

absl::StatusOr<WorkerLoad> SimEngine::Load(const Request& request) const {
  PromptHashes hashes(request.cache_salt, request.prompt);
  const WorkerLoad load = loop_->load(request, &hashes);
  const int num_cached = index_ == nullptr || request.bypass_prefix_cache ? 0 : index_->NumTokens(&hashes);
  if (load.num_cached_tokens != num_cached) {
    return Violation("the load has ", load.num_cached_tokens, " cached tokens, the index ", num_cached);
  }
  return load;
}

void SimEngine::Digest(const StepPlan& plan) {
  const auto add = [&](uint64_t value) { digest_ = MixBits(digest_ * 3 + value + 1); };
  add(Value(plan.step));
  for (const BlockSwap& swap : plan.swap_outs) add(Value(swap.device) * 65536ull + Value(swap.host));
  for (const BlockSwap& swap : plan.swap_ins) add(Value(swap.device) * 65536ull + Value(swap.host));
  for (const BlockCopy& copy : plan.copies) add(Value(copy.source) * 65536ull + Value(copy.destination));
  for (const SequenceStart& start : plan.starts) add(Value(start.sequence) * 65536 + Value(start.row));
  for (const SequenceFork& fork : plan.forks) add(Value(fork.sequence) * 65536 + Value(fork.row));
  for (const TokenAppend& append : plan.appends) add(Value(append.row) * 65536ull + append.token);
  for (const SequenceSlice& slice : plan.slices) {
    add(Value(slice.row) * 65536ull + slice.first_position);
    add(slice.num_tokens * 65536ull + slice.first_changed_block);
    for (const BlockId block : slice.block_tail) add(Value(block));
  }
}

absl::Status SimEngine::CheckEnd(const std::vector<std::shared_ptr<SimCaller>>& callers) {
  CallerTotals totals;
  for (const auto& caller : callers) totals.Add(*caller);
  QUIRE_RETURN_IF_ERROR(CheckQuiet(totals));
  return options_.prefix_cache != 0 ? CheckCache(callers) : absl::OkStatus();
}

absl::Status SimEngine::CheckQuiet(const CallerTotals& totals) {
  const SchedulerCounts counts = scheduler_->counts();
  if (counts.waiting + counts.running + counts.swapped != 0 || !callers_.empty()) {
    return Violation(counts.waiting, " requests wait, ", counts.running, " run and ", counts.swapped,
                     " are swapped out after the end of all");
  }
  if (blocks_->counts().used != 0 || blocks_->counts().host_used != 0) {
    return Violation(blocks_->counts().used, " blocks and ", blocks_->counts().host_used,
                     " host blocks belong to nobody");
  }
  if (is_audit_pending_) return Violation("an audit was not answered");
  QUIRE_RETURN_IF_ERROR(blocks_->CheckAll());
  return CheckCounts(totals);
}

absl::Status SimEngine::CheckCounts(const CallerTotals& totals) const {
  const std::shared_ptr<const WorkerStatus> status = loop_->status();
  const StepLoopStats& stats = status->stats;
  if (stats.displaced != report_.displaced) return Violation(stats.displaced, " displaced of ", report_.displaced);
  int64_t num_ended = stats.failed + stats.displaced;
  for (const int64_t count : stats.finished) num_ended += count;
  if (num_ended != totals.requests) return Violation(num_ended, " ends of ", totals.requests);
  if (stats.finished[static_cast<int>(FinishReason::kDeadline)] != report_.expired ||
      stats.finished[static_cast<int>(FinishReason::kCancelled)] != report_.cancelled ||
      stats.failed != report_.failed) {
    return Violation("ends are counted under another reason");
  }
  const int64_t num_refused =
      stats.refused_never_fits + stats.refused_queue_full + stats.refused_worker_lost + stats.refused_overloaded;
  if (num_refused != report_.refused) return Violation(num_refused, " refusals of ", report_.refused);
  if (stats.generated_tokens != totals.tokens) return Violation(stats.generated_tokens, " tokens of ", totals.tokens);
  if (stats.prompt_tokens != totals.prompt_tokens) return Violation("prompt tokens are miscounted");
  if (stats.cached_tokens != totals.cached_tokens) {
    return Violation(stats.cached_tokens, " cached tokens of ", totals.cached_tokens);
  }
  if (stats.interruptions != oracle_.num_interruptions()) {
    return Violation(stats.interruptions, " interruptions of ", oracle_.num_interruptions());
  }
  if (blocks_->num_adopted_tokens() - num_probed_tokens_ != scheduler_->counts().cached_tokens) {
    return Violation(scheduler_->counts().cached_tokens, " cached tokens counted, ",
                     blocks_->num_adopted_tokens() - num_probed_tokens_, " taken over");
  }
  const SimReport report = Report();
  if (stats.preemptions != report.preemptions || stats.swap_outs != report.swap_outs || stats.forks != report.forks ||
      stats.recomputed_tokens != report.recomputed_tokens || stats.evictions != report.evictions ||
      stats.cow_copies != num_sent_copies_) {
    return Violation("the counters are not those of the schedulers and pools");
  }
  return absl::OkStatus();
}

// Every cached block is on the path of some transcript. Beams that died left blocks that are on no path.
absl::Status SimEngine::CheckCache(const std::vector<std::shared_ptr<SimCaller>>& callers) {
  std::set<BlockId> found;
  for (const auto& caller : callers) {
    if (caller->request().bypass_prefix_cache) continue;
    for (int i = 0; i < caller->num_outputs(); ++i) {
      QUIRE_RETURN_IF_ERROR(Probe(caller->request().cache_salt, caller->Transcript(i), &found));
    }
  }
  const int num_cached = blocks_->counts().evictable;
  if (loop_->status()->is_ready && !has_searched_ && num_cached != static_cast<int>(found.size())) {
    return Violation(num_cached, " blocks are cached, ", found.size(), " of them for what requests had");
  }
  return absl::OkStatus();
}

void SimEngine::AddPool(SimReport* report) const {
  const SchedulerCounts counts = scheduler_->counts();
  report->preemptions += counts.preemptions;
  report->swap_outs += counts.swap_outs;
  report->forks += counts.forks;
  report->copies += blocks_->num_copies();
  report->evictions += blocks_->num_evictions();
  report->cached_tokens += counts.cached_tokens;
  report->scheduled_tokens += counts.scheduled_tokens;
  report->recomputed_tokens += counts.recomputed_tokens;
}

SimReport SimEngine::Report() const {
  SimReport report = report_;
  report.tokens = loop_->status()->stats.generated_tokens;
  if (scheduler_ != nullptr) AddPool(&report);
  if (2 * num_crowded_plans_ >= report.plans) {
    report.crowded_scheduled_tokens = report.scheduled_tokens;
    report.crowded_recomputed_tokens = report.recomputed_tokens;
  }
  return report;
}

}  // namespace quire
