// SPDX-License-Identifier: Apache-2.0

// The part of SimEngine that drives the loop.

#include "tests/sim/sim_engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kv_manager/engine/table_audit.h"
#include "tests/sim/violation.h"

namespace quire {
namespace {

// The number of rounds until a worker that answers at once has joined.
constexpr int kRoundsToJoin = 3;
// The longest time that an audit may wait for a step.
constexpr int64_t kAuditPatienceUs = 10 * kMicrosPerEvent;
// All workers have the same weights.
constexpr FamilyId kFamily{1};

}  // namespace

SimEngine::SimEngine(const SimWorker& worker, const ShadowModel& model, const ManualClock* clock, Hooks hooks)
    : SimEngine(worker, model, clock, std::move(hooks), {std::make_unique<SimRanks>(worker, model)}) {
  for (int i = 0; i < kRoundsToJoin; ++i) status_.Update(RunRound());
  if (!loop_->status()->is_ready) Complain("the worker has not joined");
}

SimEngine::SimEngine(const SimWorker& worker, const ShadowModel& model, const ManualClock* clock, Hooks hooks,
                     Remains remains)
    : options_(worker),
      model_(model),
      clock_(clock),
      hooks_(std::move(hooks)),
      oracle_(worker, clock->NowMicros()),
      rebalance_(worker.rebalances != 0),
      generation_{static_cast<uint64_t>(model.numerics)},
      next_generation_(generation_),
      ranks_(std::move(remains.ranks)),
      running_at_death_(std::move(remains.running)),
      has_searched_before_(remains.has_searched),
      num_managers_before_(remains.num_managers) {
  const bool has_family = hooks_.others != nullptr;
  using FamilyOf = std::function<FamilyId(GenerationId)>;
  using OtherNumerics = std::function<std::string(FamilyId, GenerationId)>;
  loop_ = std::make_unique<StepLoop>(
      worker.LoopOptions(), ranks_->NewClient(RanksHooks()),
      StepLoopHooks{
          .admit_worker = [this](const WorkerDescription&) { return Admit(); },
          .family_of = has_family ? FamilyOf([](GenerationId) { return kFamily; }) : nullptr,
          .other_numerics =
              has_family ? OtherNumerics([this](FamilyId, GenerationId) { return hooks_.others(this); }) : nullptr,
          .on_change = [] {},
          .move_request = [this](const MoveWish& wish,
                                 TakeRequest take) { return hooks_.move != nullptr && OnWish(wish, take); },
          .find_movable =
              [this](absl::Span<const MoveWish> wishes) {
                is_inbox_handled_ = true;
                return hooks_.find == nullptr ? wishes.size() : hooks_.find(this, wishes);
              },
          .restore_request = [this](const RequestToRestore& found) { return OnRestore(found); },
          .make_blocks = [this](const PagedBlockManagerOptions& options) { return MakeBlocks(options); }},
      clock);
}

SimRanks::Hooks SimEngine::RanksHooks() {
  return {.on_message = [this] { has_news_ = true; },
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
          .on_executed = [this](StepId step) { OnExecuted(step); },
          .on_adopted = [this] { Post({.kind = Posted::Kind::kOpened}); },
          .on_refusal =
              [this] {
                oracle_.OnLossPosted();
                ++report_.losses;
              },
          .on_poison = [this](const Poison& poison, SequenceId sequence) { OnPoison(poison, sequence); },
          .on_difference =
              [this] {
                oracle_.OnLossPosted();
                is_unrepairable_ = true;
                ++report_.losses;
              }};
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
  has_searched_ = std::exchange(has_searched_before_, false);
  return blocks;
}

// The question lies in the inbox behind the description, so it sees the scheduler of the pool that is described.
void SimEngine::OnDescribe() {
  status_.Update(loop_->Ask([this](const LoopView& view) {
    if (view.scheduler == nullptr || view.scheduler == scheduler_) return;
    scheduler_ = view.scheduler;
    scheduler_->SetStepLimit(options_.Limit());
  }));
}

void SimEngine::OnPoison(const Poison& poison, SequenceId sequence) {
  if (!oracle_.is_loss_due() && poison.is_named) named_ = sequence;
  oracle_.OnLossPosted();
  ++report_.losses;
}

absl::Status SimEngine::Submit(std::shared_ptr<SimCaller> caller) {
  const Request& request = caller->request();
  ++report_.events;
  PromptHashes hashes(request.cache_salt, request.prompt);
  const int num_requests = loop_->load().num_requests;
  QUIRE_RETURN_IF_ERROR(loop_->Submit(request, caller, &hashes));
  if (loop_->load().num_requests != num_requests + 1) return Violation("a submitted request is no load");
  if (caller->poison().has_value()) ranks_->AddPoison(*caller->poison());
  Post({.kind = Posted::Kind::kSubmit, .caller = std::move(caller)});
  return absl::OkStatus();
}

void SimEngine::Cancel(SimCaller* caller) {
  ++report_.events;
  const bool is_withdrawn = loop_->Cancel(caller->request().id).has_value();
  if (caller->has_ended() || caller->is_cancel_posted()) return;
  caller->OnCancelPosted();
  if (is_withdrawn) return Withdraw(caller);
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

absl::Status SimEngine::SetDraining(bool is_draining, bool migrates) {
  is_drained_by_operator_ = is_draining;
  has_news_ = true;
  loop_->SetDrainedByOperator(is_draining, migrates);
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
  ranks_->TellTables(kind);
  status_.Update(loop_->Ask([this, kind, repairs](const LoopView& view) {
    view.tables->Ask(audit_deadline_us_, repairs, [this, kind](const TableAudit& audit) { CheckAudit(audit, kind); });
  }));
}

absl::Status SimEngine::RunRound() {
  has_news_ = false;
  was_plan_empty_ = false;
  num_tokens_of_wish_ = std::numeric_limits<int64_t>::max();
  is_inbox_handled_ = false;
  has_changed_ |= next_deadline_us_ <= clock_->NowMicros();
  must_fail_.clear();
  reported_.clear();
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
  oracle_.BeginRound(clock_->NowMicros(), ranks_->is_draining());
  wake_us_ = loop_->RunOnce();
  if (is_planning_) EndPlan({});
  TakePosted(/*is_until_result=*/false);
  if (blocks_ != nullptr) {
    NoteRunning();
    DropEnded();
  }
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

absl::Status SimEngine::Answer(std::optional<int> lagging) {
  if (lagging.has_value()) lagging = *lagging % ranks_->size();
  QUIRE_ASSIGN_OR_RETURN(std::vector<SimRanks::Answered> answered, ranks_->Answer(lagging));
  for (SimRanks::Answered& step : answered) {
    Post({.kind = Posted::Kind::kResult, .failed = std::move(step.failed), .early = std::move(step.early)});
  }
  return absl::OkStatus();
}

void SimEngine::Lose(int rank) {
  if (ranks_->has_session()) oracle_.OnLossPosted();
  report_.losses += ranks_->has_session();
  has_news_ |= ranks_->is_alive();
  ranks_->Die(rank % ranks_->size());
}

void SimEngine::Return(int num_blocks) {
  ranks_->Start(num_blocks);
}

void SimEngine::Drain(int rank) {
  report_.drains += ranks_->has_session();
  ranks_->Drain(rank % ranks_->size());
  has_news_ = true;
}

void SimEngine::SetSilent(bool is_silent, std::optional<int> rank) {
  for (int i = 0; i < ranks_->size(); ++i) {
    if (!rank.has_value() || *rank % ranks_->size() == i) ranks_->SetSilent(i, is_silent);
  }
  oracle_.SetSilent(is_silent);
  has_news_ = true;
}

void SimEngine::RepeatLastResult() {
  if (!ranks_->RepeatLastResult()) return;
  has_news_ = true;
  if (ranks_->has_session() && ranks_->last_result_epoch() == ranks_->epoch()) oracle_.OnLossPosted();
}

bool SimEngine::IsOfSession() const {
  const std::shared_ptr<const WorkerStatus> status = loop_->status();
  return status->is_ready && status->num_plans_in_flight == 0 && ranks_->has_session() &&
         ranks_->epoch() == status->epoch;
}

absl::Status SimEngine::Probe(const std::string& salt, std::vector<TokenId> tokens, std::set<BlockId>* found) {
  if (!IsOfSession()) return absl::OkStatus();
  tokens.push_back(-1);  // The prefix cache is never searched for the last token.
  const PrefixHit hit = blocks_->FindPrefix(salt, tokens);
  const SequenceId sequence{++probe_};
  blocks_->AdoptPrefix(sequence, salt, tokens, hit.num_tokens);
  const absl::Span<const BlockId> table = blocks_->Table(sequence);
  const absl::Status slots = ranks_->memory().CheckSlots(table, absl::MakeConstSpan(tokens).first(hit.num_tokens));
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
  return status->is_ready && status->num_plans_in_flight == 0 && !ranks_->is_draining() && posted_.empty() &&
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

}  // namespace quire
