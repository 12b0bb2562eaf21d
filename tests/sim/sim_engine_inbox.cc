// SPDX-License-Identifier: Apache-2.0

// The part of SimEngine that knows what is in the inbox of the loop, and what becomes of it.

#include "tests/sim/sim_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "base/num_blocks.h"
#include "base/status_reason.h"
#include "tests/sim/violation.h"

namespace quire {
namespace {

// Whether a request that has ended with this error was in the queue and left it for another one.
bool IsDisplacement(const absl::Status& failure) {
  return absl::IsResourceExhausted(failure) && absl::StrContains(failure.message(), "gave its place");
}

// Whether the request has failed because the worker has ended one of its sequences.
bool IsReport(const absl::Status& failure) {
  const std::optional<StatusReason> reason = ReasonOf(failure);
  return absl::IsInternal(failure) && reason.has_value() && reason->word == "LOGITS_NOT_FINITE";
}

}  // namespace

// The sequences share the whole blocks of the prompt.
int64_t SimEngine::BlocksOf(const SequenceGroup& group, const CacheGroups& groups) {
  const Request& request = group.request();
  const int block_size = groups.block_size();
  const int64_t num_shared = static_cast<int64_t>(request.prompt.size()) / block_size;
  int64_t num_own = group.num_rows() - group.num_sequences();  // For samples that are forked later.
  for (const auto& sequence : group.sequences()) {
    const int64_t num_all = (sequence->num_known_tokens() + block_size - 1) / block_size;
    num_own += std::max<int64_t>(num_all - num_shared, 0) + WindowBlocks(groups, sequence->num_known_tokens());
  }
  return std::min(num_shared + num_own, MostBlocks(request, groups));
}

bool SimEngine::IsRefusal(const absl::Status& failure) {
  if (IsDisplacement(failure)) return false;
  if (absl::StrContains(failure.message(), "came back with another pool")) return false;
  if (absl::StrContains(failure.message(), "another worker cannot continue it")) return false;
  return absl::IsInvalidArgument(failure) || absl::IsFailedPrecondition(failure) ||
         absl::IsResourceExhausted(failure) || absl::StrContains(failure.message(), "is not connected");
}

bool SimEngine::IsTooLarge(const Request& request) const {
  return NumRows(request) > options_.rows || MostBlocks(request, options_.Groups()) > options_.blocks;
}

bool SimEngine::ExceedsContext(const Request& request) const {
  const int num_generated = request.is_prompt_only ? 0 : request.max_tokens;
  return static_cast<int>(request.prompt.size()) + num_generated > options_.context;
}

void SimEngine::Post(Posted posted) {
  posted_.push_back(std::move(posted));
  has_news_ = true;
}

void SimEngine::Withdraw(SimCaller* caller) {
  const auto is_submission = [caller](const Posted& posted) {
    return posted.kind == Posted::Kind::kSubmit && posted.caller.get() == caller;
  };
  const auto it = std::find_if(posted_.begin() + static_cast<std::ptrdiff_t>(num_taken_), posted_.end(), is_submission);
  if (it == posted_.end()) return Complain("request ", Value(caller->request().id), " was not in the inbox");
  // The loop never counts the request.
  --moved_.requests;
  moved_.prompt_tokens -= static_cast<int64_t>(caller->request().prompt.size());
  caller->OnCancelTaken();
  has_news_ = true;
  posted_.erase(it);
}

void SimEngine::PostWantedEnd(SimCaller* caller) {
  loop_->Cancel(caller->request().id, FinishReason::kStopToken);
  caller->OnCancelPosted();
  Post({.kind = Posted::Kind::kStop, .caller = caller->shared_from_this()});
}

void SimEngine::TakePosted(bool is_until_result) {
  // What the last step has ended is known, and the events behind its result are not taken yet.
  Settle();
  while (num_taken_ > 0) {
    if (TakeOnePosted() && is_until_result) return;
  }
}

void SimEngine::TakePostedUntil(RequestId request) {
  Settle();
  for (bool is_over = false; num_taken_ > 0 && !is_over;) {
    const Posted& next = posted_.front();
    is_over = (next.kind == Posted::Kind::kSubmit && next.caller->request().id == request) ||
              (next.kind == Posted::Kind::kAdopt && next.moving.caller->request().id == request);
    TakeOnePosted();
  }
}

bool SimEngine::TakeOnePosted() {
  Posted posted = std::move(posted_.front());
  has_changed_ = true;
  posted_.pop_front();
  --num_taken_;
  switch (posted.kind) {
    case Posted::Kind::kSubmit:
      OnSubmissionTaken(posted.caller);
      break;
    case Posted::Kind::kAdopt:
      OnAdoptionTaken(std::move(posted.moving));
      break;
    case Posted::Kind::kCancel:
      if (!posted.caller->has_left_scheduler() && !posted.caller->has_ended()) OnGone(posted.caller->request());
      report_.cancelled += posted.caller->OnCancelTaken();
      break;
    case Posted::Kind::kStop:
      posted.caller->OnCancelTaken();
      break;
    case Posted::Kind::kSampleEnd:
      posted.caller->OnSampleEndTaken(posted.sample_index);
      break;
    case Posted::Kind::kResult:
      failed_ = std::move(posted.failed);
      early_ = std::move(posted.early);
      break;
    case Posted::Kind::kOpened:
      FinishRestore();
      break;
  }
  return posted.kind == Posted::Kind::kResult;
}

// Requests move when the loop has handled the inbox and has not planned yet. A request that cannot continue here moves
// before, when the loop handles the event with which it has come.
bool SimEngine::OnWish(const MoveWish& wish, TakeRequest take) {
  const RequestId id = wish.request().id;
  if (is_inbox_handled_) {
    TakePosted(/*is_until_result=*/false);
  } else {
    if (hooks_.find(this, absl::MakeConstSpan(&wish, 1)) > 0) return false;
    passed_on_ = id;
    TakePostedUntil(id);
    passed_on_.reset();
  }
  const auto live = callers_.find(id);
  if (live == callers_.end() || live->second.caller->has_ended()) {
    Complain("request ", Value(id), " is to move and does not live here");
    return false;
  }
  if (wish.family != FamilyId{0} && (options_.approximate == 0 || (is_inbox_handled_ && oracle_.is_session_open()))) {
    Complain("request ", Value(id), " may get other numerics");
  }
  const int64_t num_tokens = live->second.caller->num_tokens();
  num_beam_tokens_of_wish_ =
      wish.request().beam.has_value() ? wish.group.NumGeneratedTokens() - static_cast<int>(num_tokens) : 0;
  if (!is_inbox_handled_) return hooks_.move(this, wish, take);
  if (wish.wants_idle) {
    status_.Update(rebalance_.OnMove(wish.group, live->second.came_us, clock_->NowMicros()));
    const bool has_moved = hooks_.move(this, wish, take);
    report_.rebalanced += has_moved;
    return has_moved;
  }
  if (num_tokens > num_tokens_of_wish_) Complain("a request with more tokens moves later than one with less");
  num_tokens_of_wish_ = num_tokens;
  if (oracle_.is_session_open() && !wish.needs_room) Complain("a request may leave its worker for one without room");
  if (wish.accepts_delay && !oracle_.MaySuspectsMove()) Complain("a request may leave its worker for one that is late");
  if (blame_.IsSuspect(id) && !oracle_.MaySuspectsMove()) Complain("a suspect is to move");
  return hooks_.move(this, wish, take);
}

void SimEngine::CheckStart(Live* live) {
  const SimCaller& caller = *live->caller;
  if (!caller.has_started() || std::exchange(live->is_start_checked, true)) return;
  const RequestId request = caller.request().id;
  if (caller.num_cached_tokens() == audit_->first_position(request)) return;
  Complain("request ", Value(request), " began at position ", audit_->first_position(request), " with ",
           caller.num_cached_tokens(), " cached tokens");
}

SimEngine::Moving SimEngine::Release(RequestId request) {
  const auto it = callers_.find(request);
  CheckStart(&it->second);
  CheckPins(it->second.caller.get());
  Moving moving{it->second.caller, it->second.is_start_checked, blame_.Release(request), num_beam_tokens_of_wish_};
  for (size_t i = 0; i < posted_.size();) {
    const Posted& posted = posted_[i];
    if (posted.caller != moving.caller) {
      ++i;
      continue;
    }
    moving.has_cancelled |= posted.kind == Posted::Kind::kCancel;
    moving.has_stopped |= posted.kind == Posted::Kind::kStop;
    if (posted.kind == Posted::Kind::kSampleEnd) moving.ended_samples.push_back(posted.sample_index);
    num_taken_ -= i < num_taken_;
    posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  callers_.erase(it);
  OnGone(moving.caller->request());
  audit_->OnEnded(request);
  has_changed_ = true;
  moved_.Add(*moving.caller);
  --moved_.requests;  // It is counted where it ends.
  return moving;
}

void SimEngine::Adopt(MovingRequest request, Moving moving) {
  const Request& adopted = moving.caller->request();
  PromptHashes hashes(adopted.cache_salt, adopted.prompt);
  const int num_requests = loop_->load().num_requests;
  loop_->Adopt(std::move(request), &hashes);
  if (loop_->load().num_requests != num_requests + 1) Complain("a moved request is no load");
  moved_.tokens -= moving.caller->num_tokens();
  moved_.cached_tokens -= moving.caller->num_cached_tokens();
  moved_.prompt_tokens -= static_cast<int64_t>(adopted.prompt.size());
  const std::shared_ptr<SimCaller> caller = moving.caller;
  const std::vector<int> ended_samples = std::move(moving.ended_samples);
  const bool has_cancelled = moving.has_cancelled;
  const bool has_stopped = moving.has_stopped;
  Post({.kind = Posted::Kind::kAdopt, .moving = std::move(moving)});
  for (const int sample : ended_samples) {
    Post({.kind = Posted::Kind::kSampleEnd, .caller = caller, .sample_index = sample});
  }
  if (has_cancelled) Post({.kind = Posted::Kind::kCancel, .caller = caller});
  if (has_stopped) Post({.kind = Posted::Kind::kStop, .caller = caller});
}

void SimEngine::OnAdoptionTaken(Moving moving) {
  const SimCaller& caller = *moving.caller;
  const Request& request = caller.request();
  ++report_.moved;
  OnHere(request.id);
  has_searched_ |= request.beam.has_value();
  audit_->OnAdopted(request);
  blame_.Adopt(request.id, std::move(moving.record));
  if (!caller.has_ended() && passed_on_ != request.id && request.generation != generation_) {
    Complain("request ", Value(request.id), " continues with other numerics, and its caller was not told");
  }
  callers_.emplace(request.id, Live{moving.caller, moving.is_start_checked,
                                    caller.has_started() ? caller.num_tokens() : -1, moving.num_beam_tokens,
                                    /*has_moved=*/true, /*has_run=*/false, clock_->NowMicros()});
}

void SimEngine::NoteRunning() {
  if (scheduler_ == nullptr) return;  // It has made no plan yet.
  for (auto& [request, live] : callers_) {
    if (!live.has_moved || live.has_run) continue;
    const SequenceGroup* const group = scheduler_->FindGroup(request);
    live.has_run = group != nullptr && group->is_running();
  }
}

// A request that has not started wants blocks, and one that has come here and has neither run nor got a token since.
int64_t SimEngine::WantedBlocks(const Live& live) const {
  const SimCaller& caller = *live.caller;
  if (live.has_run) return 0;
  if (caller.has_started() && caller.num_tokens() != live.num_tokens_at_adoption) return 0;
  const int num_tokens = static_cast<int>(caller.request().prompt.size() + caller.num_tokens()) + live.num_beam_tokens;
  return NumBlocksFor(num_tokens + 1, options_.block_size) + WindowBlocks(options_.Groups(), num_tokens + 1);
}

std::vector<Request> SimEngine::Orphans() const {
  std::vector<Request> orphans;
  if (loop_->status()->is_ready) return orphans;
  for (const auto& [request, live] : callers_) {
    const SimCaller& caller = *live.caller;
    if (caller.has_ended() || caller.has_left_scheduler() || blame_.IsSuspect(request)) continue;
    orphans.push_back(caller.request());
  }
  return orphans;
}

absl::StatusCode SimEngine::ExpectedAdmission(const Request& request) const {
  return ExceedsContext(request) ? absl::StatusCode::kInvalidArgument
         : IsTooLarge(request)   ? absl::StatusCode::kFailedPrecondition
         : MostBlocks(request, options_.Groups()) > options_.MaxBlocksOf(request.tenant)
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
  OnHere(request.id);
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
  const bool is_passed_on = passed_on_ == request.id;
  if (!is_passed_on && is_by_scheduler && !is_overloaded && found != expected && (is_queue_known || !is_of_queue)) {
    Complain("submission of request ", Value(request.id), ": ", failure.ToString());
  }
  if (is_refused) {
    if (absl::IsUnavailable(failure))
      status_.Update(oracle_.CheckFailure(failure, kNever, /*has_started=*/false, /*is_ready=*/false,
                                          /*is_too_large=*/false, /*exceeds_context=*/false));
    ++report_.refused;
    return;
  }
  if (!is_passed_on && request.generation != generation_)
    Complain("request ", Value(request.id), " has come to another generation");
  if (const auto loser = ExpectedLoser(request.tenant);
      !is_passed_on && num_waiting_ >= options_.queue && loser.has_value()) {
    --waiting_by_tenant_[*loser];
    --new_by_tenant_[*loser];
    ++to_displace_[*loser];
    --num_waiting_;
  }
  if (!is_passed_on) {
    ++waiting_by_tenant_[request.tenant];
    ++new_by_tenant_[request.tenant];
    ++num_waiting_;
  }
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
  NoteReported();
  oracle_.OnCommitted();
  blame_.OnCommitted(early_, [this](RequestId request, int sample) { return IsSampleLive(request, sample); });
}

// A sequence that the scheduler does not have any more may fail without consequences.
void SimEngine::NoteReported() {
  for (const PoisonWatch::FailedSlice& slice : std::exchange(failed_, {})) {
    for (const auto& [request, live] : callers_) {
      if (live.caller->request().sampling.seed != slice.seed) continue;
      const SequenceGroup* const group = scheduler_->FindGroup(request);
      if (group != nullptr && group->Find(slice.sequence) != nullptr) reported_.insert(request);
    }
  }
}

void SimEngine::OnPin(const std::string& tenant, double max_share, const std::string& salt,
                      absl::Span<const TokenId> tokens, int64_t expires_us, int num_tokens) {
  ++(num_tokens > 0 ? report_.pins : report_.failed_pins);
  const double own_share = 0.01 * (tenant == "0" ? options_.first_percent : options_.others_percent);
  if (max_share != own_share) Complain("tenant ", tenant, " pins as if it had ", max_share, " of the pool");
  made_pins_.push_back({tenant, salt, {tokens.begin(), tokens.end()}, expires_us - clock_->NowMicros(), num_tokens});
}

// The pins of a request are made one after the other. Several requests may want the same ones.
void SimEngine::CheckPins(SimCaller* caller) {
  if (!caller->TakePinNews()) return;
  const Request& request = caller->request();
  const std::vector<int>& told = caller->pinned_tokens();
  const auto made = std::search(made_pins_.begin(), made_pins_.end(), request.pins.begin(), request.pins.end(),
                                [&](const MadePin& pin, const Request::PrefixPin& wanted) {
                                  const auto i = static_cast<size_t>(&wanted - request.pins.data());
                                  return pin.tenant == request.tenant && pin.salt == request.cache_salt &&
                                         static_cast<int>(pin.tokens.size()) == wanted.num_tokens &&
                                         std::equal(pin.tokens.begin(), pin.tokens.end(), request.prompt.begin()) &&
                                         pin.ttl_us == wanted.ttl_us && pin.num_tokens == told[i];
                                });
  if (told.size() != request.pins.size() || made == made_pins_.end()) {
    return Complain("request ", Value(request.id), " is told of pins that were not made for it");
  }
  made_pins_.erase(made, made + static_cast<std::ptrdiff_t>(told.size()));
}

void SimEngine::OnStepsAbandoned() {
  ++report_.events;
  // The session may be lost in the round in which it has taken rows over.
  if (is_restoring_) {
    TakePostedUntilOpened();
    TakeOnePosted();
  }
  gone_.clear();
  ending_.clear();
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
      [this](const SequenceGroup& group) { blocks_of_[group.id()] = BlocksOf(group, options_.Groups()); });
}

void SimEngine::OnPlan(const StepPlan& plan) {
  if (!is_planning_) return Complain("a plan was sent that was not made");
  EndPlan(plan);
  if (!gone_.empty()) ending_.emplace_back(plan.step, std::exchange(gone_, {}));
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
  absl::flat_hash_set<RowId> forks;
  for (const SequenceFork& fork : plan.forks) forks.insert(fork.row);
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
                      slice.num_tokens == 0 && forks.contains(slice.row)});
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

// With --failover=exact, a request that has waited in vain is told that the ready workers have other numerics, if there
// are any.
void SimEngine::CheckReason(const absl::Status& failure) {
  if (!absl::StrContains(failure.message(), "did not come back within")) return;
  const std::optional<StatusReason> reason = ReasonOf(failure);
  const bool says_so = reason.has_value() && reason->word == "NUMERICS_DIFFER";
  const std::string others = hooks_.others == nullptr || options_.approximate != 0 ? "" : hooks_.others(this);
  if (says_so == others.empty()) Complain("ready workers have the numerics '", others, "': ", failure.message());
  report_.failed_for_numerics += says_so;
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
    CheckStart(&it->second);
    CheckPins(it->second.caller.get());
    if (caller.has_ended() || caller.has_left_scheduler()) {
      audit_->OnEnded(request.id);
      blame_.OnEnded(request.id);
    }
    if (caller.has_ended()) {
      if (!caller.failure().ok() && !caller.has_left_scheduler()) OnGone(request);
      if (IsDisplacement(caller.failure())) {
        if (caller.has_started())
          Complain("request ", Value(request.id), " has started and left the queue for another");
        ++report_.displaced;
        ++displaced_[request.tenant];
      } else if (!caller.failure().ok()) {
        ++(absl::IsDeadlineExceeded(caller.failure()) ? report_.expired : report_.failed);
        const bool is_reported = reported_.contains(request.id) && IsReport(caller.failure());
        const bool is_convicted =
            is_reported || (must_fail_.contains(request.id) && absl::IsInternal(caller.failure()));
        report_.reported += is_reported;
        report_.convicted += is_convicted && !is_reported;
        report_.convicted_in_part +=
            is_convicted && !is_reported && caller.poison().has_value() && caller.poison()->sample.has_value();
        if (!is_convicted) {
          CheckReason(caller.failure());
          status_.Update(oracle_.CheckFailure(caller.failure(), request.deadline_us, caller.has_started(), is_ready,
                                              IsTooLarge(request), ExceedsContext(request)));
        }
      }
      it = callers_.erase(it);
      continue;
    }
    if (caller.WantsEnd()) wanting_end_.push_back(it->second.caller.get());
    num_wanted_blocks_ += WantedBlocks(it->second);
    next_deadline_us_ = std::min(next_deadline_us_, request.deadline_us);
    ++it;
  }
  if (!std::exchange(made_pins_, {}).empty()) Complain("pins were made of which no request is told");
}

}  // namespace quire
