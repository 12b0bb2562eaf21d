// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/worker_session.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/pool_summary.h"
#include "base/status_reason.h"
#include "base/worker_protocol.h"
#include "kv_manager/engine/inventory_adoption.h"
#include "kv_manager/engine/loop_report.h"
#include "security/tls_mismatch.h"

namespace quire {
namespace {

// A worker that takes longer than this to come up is worth a warning.
constexpr int64_t kQuietStartUs = 10'000'000;

// Requests that could not move try again after this time. While their worker serves them, every attempt costs a pause
// between two steps.
constexpr int64_t kMoveIntervalUs = 100'000;
constexpr int64_t kMoveIntervalOfReadyUs = 1'000'000;

// A link needs a client that has its listener.
std::unique_ptr<WorkerClient> WithListener(std::unique_ptr<WorkerClient> client, WorkerClient::Listener* listener) {
  client->SetListener(listener);
  return client;
}

// The sequence at which the worker says that it has failed.
std::optional<SequenceId> NamedSequence(const absl::Status& reason) {
  const std::optional<StatusReason> named = ReasonOf(reason);
  if (!named.has_value()) return std::nullopt;
  const auto sequence = named->metadata.find(kFailedSequence);
  uint64_t id = 0;
  if (sequence == named->metadata.end() || !absl::SimpleAtoi(sequence->second, &id)) return std::nullopt;
  return SequenceId{id};
}

// Returns whether another manager, or another session of this one, has taken the worker. The status ABORTED alone does
// not say so, because proxies and gRPC use it too.
bool HasReason(const absl::Status& status, std::string_view word) {
  const std::optional<StatusReason> named = ReasonOf(status);
  return named.has_value() && named->word == word;
}

bool IsTakenOver(const absl::Status& reason) {
  return HasReason(reason, kSessionTakenOver);
}

// Returns why a session was lost, for clients. gRPC writes addresses into the errors of connections.
std::string CauseForClients(const absl::Status& reason) {
  if (absl::IsUnavailable(reason) || absl::IsUnknown(reason) || absl::IsAborted(reason)) {
    return "the connection to the worker was lost";
  }
  if (absl::IsDeadlineExceeded(reason)) return "the worker did not answer in time";
  return std::string(reason.message());
}

// Tells reasons apart that say different things. An epoch or a time in a reason is another one at each attempt.
std::string WithoutNumbers(const absl::Status& reason) {
  std::string text(reason.message());
  std::erase_if(text, absl::ascii_isdigit);
  return text;
}

absl::Status ConvictedError(const Convict& convict, const absl::Status& reason) {
  std::string subject = "the request";
  std::map<std::string, std::string> metadata = {{"losses", absl::StrCat(convict.num_losses)}};
  if (convict.sample_index.has_value()) {
    subject = absl::StrCat("sample ", *convict.sample_index, " of the request");
    metadata["sample"] = absl::StrCat(*convict.sample_index);
  }
  return WithReason(
      absl::InternalError(absl::StrCat(subject, " makes its worker fail: the worker was lost ", convict.num_losses,
                                       " times while it computed this request, at last while it computed nothing else; "
                                       "the last reason: ",
                                       CauseForClients(reason))),
      "REQUEST_FAILS_WORKER", metadata);
}

}  // namespace

WorkerSession::WorkerSession(const StepLoopOptions* options, const StepLoopHooks* hooks,
                             std::unique_ptr<WorkerClient> client, LoopInbox* inbox, LiveRequests* live,
                             LoopReport* report, int64_t now_us)
    : options_(options),
      hooks_(hooks),
      inbox_(inbox),
      live_(live),
      report_(report),
      lost_since_us_(now_us),
      failover_at_us_(now_us + options->failover_after_us),
      link_(options->link, WithListener(std::move(client), inbox)) {}

void WorkerSession::OnDescribed(WorkerDescribed event, int64_t now_us) {
  if (!link_.is_current(event.epoch)) return;
  const absl::Status memory = CheckMemoryFor(event.description, options_->max_worker_bytes);
  const absl::StatusOr<GenerationId> generation =
      memory.ok() ? hooks_->admit_worker(event.description) : absl::StatusOr<GenerationId>(memory);
  if (!generation.ok()) {
    link_.Refuse(generation.status());
    return Lose(generation.status(), now_us);
  }
  AdoptPool(event.description, *generation, now_us);
  link_.OnDescribed(event.description);
}

// Requests of another generation move to workers that still have it. The others stay if only the numerics have changed
// and options.changes_numerics allows it, or else they fail.
void WorkerSession::AdoptPool(const WorkerDescription& worker, GenerationId generation, int64_t now_us) {
  const bool is_same_generation = pool_ == nullptr || generation == generation_;
  const FamilyId family = hooks_->family_of == nullptr ? FamilyId{0} : hooks_->family_of(generation);
  if (!is_same_generation) {
    GiveRequestsAway(now_us, /*is_last_chance=*/true);
    FailForeign(worker, family);
  }
  const bool is_same_pool = description_.has_value() && description_->HasPoolOf(worker);
  generation_ = generation;
  family_ = family;
  description_ = worker;
  description_->tokenizer_files.clear();
  if (is_same_pool && is_same_generation) return;

  std::vector<MovedRequest> moved;
  if (pool_ != nullptr) {
    moved = pool_->scheduler()->TakeAll();
    report_->EndPool(*pool_);
  }
  pool_ = std::make_unique<WorkerPool>(worker, *options_, *hooks_);
  inbox_->SetPrefixIndex(pool_->index());
  live_->SetGroups(pool_->blocks()->groups());
  for (MovedRequest& request : moved) {
    const RequestId id = request.id();
    report_->stats()->numerics_changes += ChangeGeneration(generation, &request, live_->SinkOf(id));
    const absl::Status status = pool_->scheduler()->Adopt(std::move(request));
    if (status.ok()) continue;
    const absl::Status failure(
        status.code(), absl::StrCat("the worker of the request came back with another pool: ", status.message()));
    QUIRE_LOG(kWarning) << "request " << Value(id) << " failed: " << failure.message();
    live_->Fail(id, failure);
  }
}

void WorkerSession::FailForeign(const WorkerDescription& worker, FamilyId family) {
  if (family_ == FamilyId{0} || family != family_) return FailAll(ModelReplacedError());
  if (options_->changes_numerics) return;
  FailAll(NumericsDifferError("the worker of the request was restarted with other numerics",
                              description_->numerics_fingerprint, worker.numerics_fingerprint));
}

void WorkerSession::OnOpened(const SessionOpened& event, int64_t now_us) {
  if (!link_.is_current(event.epoch)) return;
  link_.OnOpened();
  has_tried_ = true;
  if (event.inventory != nullptr) {
    AdoptInventory({.options = options_,
                    .hooks = hooks_,
                    .worker = &*description_,
                    .generation = generation_,
                    .pool = pool_.get(),
                    .inbox = inbox_,
                    .live = live_,
                    .stats = report_->stats()},
                   *event.inventory, now_us);
  }
  last_step_us_ = now_us;
  has_logged_waiting_ = false;
  logged_reason_.clear();
  joined_ = Joined{.epoch = event.epoch, .num_requests = live_->size()};
}

void WorkerSession::LogJoined() {
  if (!joined_.has_value()) return;
  QUIRE_LOG(kInfo) << "worker " << Named("worker", options_->address) << " joined: epoch "
                   << Named("epoch", joined_->epoch) << ", model " << description_->model_name << ", "
                   << PoolSummary(description_->num_blocks, pool_->blocks()->groups(), description_->max_context_tokens)
                   << ", " << description_->max_sequences << " rows, " << description_->device << "; "
                   << Counted(joined_->num_requests, "request") << " waited for it";
  joined_.reset();
}

void WorkerSession::OnDraining(const WorkerDraining& event) {
  if (!link_.is_current(event.epoch)) return;
  if (drain_ == Drain::kNone) drain_ = Drain::kAnnounced;
  next_move_us_ = 0;
  QUIRE_LOG(kInfo) << "worker " << Named("worker", options_->address) << " drains; it still has "
                   << Counted(live_->size(), "request") << " to finish or to move";
}

void WorkerSession::OnProbed(const WorkerProbed& event, int64_t now_us) {
  if (link_.is_current(event.epoch)) link_.OnProbed(now_us);
}

void WorkerSession::OnLost(WorkerLost event, int64_t now_us) {
  LogJoined();  // The session may have been opened in this round.
  if (link_.is_current(event.epoch)) Lose(std::move(event.reason), now_us);
}

std::optional<WorkerLink::SentPlan> WorkerSession::OnAnswered(const PlanAnswered& event, int64_t now_us) {
  if (!link_.is_current(event.epoch)) return std::nullopt;
  absl::Status status = pool_->scheduler()->CheckResult(event.result);
  if (!status.ok()) {
    Lose(std::move(status), now_us);
    return std::nullopt;
  }
  status = tables_.OnResult(event.result, pool_->scheduler());
  if (!status.ok()) {
    Lose(std::move(status), now_us, Blame::kNobody);
    return std::nullopt;
  }
  const WorkerLink::SentPlan plan = link_.OnResult(now_us);
  last_step_us_ = now_us;
  pool_->OnStep(plan.num_tokens, event.duration_us);
  return plan;
}

int64_t WorkerSession::movable_at_us() const {
  if (hooks_->move_request == nullptr || live_->size() == 0) return kNever;
  if (link_.is_ready()) return is_leaving() ? next_move_us_ : kNever;
  const int64_t grace_end_us = lost_since_us_ + options_->worker_grace_us;
  return std::min(std::max(next_move_us_, failover_at_us_), grace_end_us);
}

void WorkerSession::MoveRequests(int64_t now_us) {
  is_fenced_ = false;
  Rebalance(now_us);
  if (now_us < movable_at_us()) return;
  if (link_.num_plans_in_flight() > 0) {
    // The pause until the plans in flight are answered is for nothing when no other worker can take any request.
    const std::vector<MoveWish> wishes = Wishes(now_us, {.needs_room = true});
    is_fenced_ = hooks_->find_movable(wishes) < wishes.size();
    if (is_fenced_) return;
  } else {
    GiveRequestsAway(now_us, /*is_last_chance=*/false);
  }
  next_move_us_ = now_us + (link_.is_ready() ? kMoveIntervalOfReadyUs : kMoveIntervalUs);
}

bool WorkerSession::IsOutdone(int64_t now_us) const {
  if (hooks_->move_request == nullptr || live_->size() == 0) return false;
  if (!link_.IsSilent(now_us - options_->failover_after_us)) return false;
  const std::vector<MoveWish> wishes = Wishes(now_us, {});
  return hooks_->find_movable(wishes) < wishes.size();
}

void WorkerSession::Rebalance(int64_t now_us) {
  if (!rebalances()) return rebalancer_.Reset();
  if (now_us < rebalancer_.due_us()) return;
  std::vector<MoveWish> wishes;
  for (const RequestId id : rebalancer_.TakeCandidates(*pool_->scheduler(), *live_, now_us)) {
    wishes.push_back({.group = *pool_->scheduler()->FindGroup(id), .needs_room = true, .wants_idle = true});
  }
  const int num_moved = GiveAway(wishes);
  rebalancer_.OnMoved(num_moved);
  report_->stats()->rebalanced_requests += num_moved;
}

void WorkerSession::OnPlanned(int64_t now_us) {
  if (rebalances()) rebalancer_.OnRound(pool_->scheduler()->counts(), now_us);
}

std::vector<MoveWish> WorkerSession::Wishes(int64_t now_us, const MoveNeeds& needs) const {
  // While their own worker may soon continue them, requests do not go where they would wait. A request that may be
  // the reason for a loss first waits for its own worker anyway, so that it does not make other workers fail as well.
  const bool has_waited = !link_.is_ready() && now_us >= lost_since_us_ + options_->worker_grace_us / 2;
  const bool is_urgent = needs.is_last_chance || has_waited;
  std::vector<MoveWish> wishes;
  for (const RequestId id : live_->ByProgress()) {
    const SequenceGroup* const group = pool_->scheduler()->FindGroup(id);
    // The group is gone when all samples of the request have ended and the stream has not ended the request yet.
    if (group == nullptr || (group->suspicion().is_suspect() && !is_urgent)) continue;
    wishes.push_back(
        {.group = *group, .needs_room = needs.needs_room, .accepts_delay = is_urgent, .family = MovableFamily()});
  }
  return wishes;
}

MovingRequest WorkerSession::Take(const SequenceGroup& group) {
  const RequestId id = group.id();
  LiveRequests::Entry live = live_->Take(id);
  if (group.beam_search() != nullptr) {
    live.num_beam_tokens = group.NumGeneratedTokens() - static_cast<int>(live.num_generated_tokens);
  }
  return {pool_->scheduler()->Take(id), std::move(live), inbox_->Release(id), MovableFamily()};
}

FamilyId WorkerSession::MovableFamily() const {
  return options_->changes_numerics && !link_.is_ready() ? family_ : FamilyId{0};
}

void WorkerSession::GiveRequestsAway(int64_t now_us, bool is_last_chance) {
  if (hooks_->move_request == nullptr) return;
  const int num_moved = GiveAway(Wishes(now_us, {.is_last_chance = is_last_chance, .needs_room = link_.is_ready()}));
  if (num_moved == 0) return;
  QUIRE_LOG(kInfo) << Counted(num_moved, "request") << " of worker " << Named("worker", options_->address)
                   << (num_moved == 1 ? " moves" : " move") << " to other workers; it still has "
                   << Counted(live_->size(), "request");
}

int WorkerSession::GiveAway(const std::vector<MoveWish>& wishes) {
  int num_moved = 0;
  for (absl::Span<const MoveWish> left = wishes; !left.empty(); left.remove_prefix(1)) {
    left.remove_prefix(hooks_->find_movable(left));
    if (left.empty()) break;
    num_moved += hooks_->move_request(left[0], [&] {
      MovingRequest moving = Take(left[0].group);
      moving.is_rebalanced = left[0].wants_idle;
      return moving;
    });
  }
  report_->stats()->moved_requests += num_moved;
  return num_moved;
}

void WorkerSession::Poll(int64_t now_us) {
  if (absl::Status status = link_.Poll(now_us); !status.ok()) Lose(std::move(status), now_us);
  if (IsOutdone(now_us)) {
    const int64_t silence_us = options_->link.probe_timeout_us + options_->failover_after_us;
    // No request makes a whole process stop.
    Lose(absl::DeadlineExceededError(absl::StrCat("the process of the worker has not answered for ", silence_us / 1000,
                                                  " ms, and another worker can continue its requests")),
         now_us, Blame::kNobody);
    failover_at_us_ = now_us;  // The requests have waited already.
  }
  if (link_.is_ready() || live_->size() == 0 || now_us < lost_since_us_ + options_->worker_grace_us) return;
  const bool may_differ = family_ != FamilyId{0} && !options_->changes_numerics;
  const std::string others = may_differ ? hooks_->other_numerics(family_, generation_) : "";
  FailAll([&](const LiveRequests::Entry& entry) {
    const std::string cause = CauseOfGrace(entry.has_started || entry.was_running);
    return others.empty() ? absl::UnavailableError(cause)
                          : NumericsDifferError(cause, description_->numerics_fingerprint, others);
  });
}

// A request may have come when the worker was lost already. So it has never had a worker, and has waited for less time.
std::string WorkerSession::CauseOfGrace(bool has_begun) const {
  const std::string worker = has_begun ? "the worker of the request" : "the worker for which it waited";
  const std::optional<StatusReason> refusal = ReasonOf(link_.last_error());
  std::string loss = absl::StrCat(worker, " was lost and");
  const char* manner = "";
  if (refusal.has_value() && refusal->word == kStaleTerm) {
    loss = absl::StrCat(worker, " serves a newer leader and");
  } else if (is_taken_over_) {
    loss = absl::StrCat("another manager has taken ", worker, ", which");
  } else if (absl::IsFailedPrecondition(link_.last_error())) {
    manner = " as one that the manager can use";  // The log says why. The reason may have the address of the worker.
  }
  return absl::StrCat(has_begun ? "" : "no worker has begun the request: ", loss, " did not come back within ",
                      options_->worker_grace_us / 1'000'000, " s", manner);
}

// A request that was placed here before load() told of the drain is in the inbox by the time the next round takes it:
// whoever places a request does so under the lock that on_change waits for. Therefore the session ends no earlier than
// in the round after the one that published the drain.
void WorkerSession::EndIfDrained(int64_t now_us) {
  if (drain_ != Drain::kPublished || live_->size() > 0 || link_.num_plans_in_flight() > 0) return;
  QUIRE_LOG(kInfo) << "worker " << Named("worker", options_->address) << " has drained; its session ends";
  NoteEnd(now_us);
  pool_->scheduler()->AbandonAll();
  EndAttemptOrSession(absl::UnavailableError("the worker has drained"), now_us);
}

int64_t WorkerSession::next_wake_us(int64_t now_us) const {
  if (is_drained_by_worker() && live_->size() == 0 && link_.num_plans_in_flight() == 0) return now_us;
  // The end of the last plan wakes a loop that is fenced.
  int64_t wake_us = std::min(link_.next_poll_us(), is_fenced_ ? kNever : movable_at_us());
  if (rebalances()) wake_us = std::min(wake_us, rebalancer_.due_us());
  if (link_.is_ready()) return IsOverdue(now_us) ? wake_us : std::min(wake_us, overdue_at_us());
  return live_->size() == 0 ? wake_us : std::min(wake_us, lost_since_us_ + options_->worker_grace_us);
}

int64_t WorkerSession::overdue_at_us() const {
  return link_.num_plans_in_flight() == 0 ? kNever : link_.progress_us() + options_->overdue_us;
}

void WorkerSession::Stop(int64_t now_us) {
  if (link_.is_ready()) {
    pool_->scheduler()->AbandonAll();
    EndAttemptOrSession(ShuttingDownError(), now_us);
  }
  const std::vector<RequestId> left = live_->LeaveRestorable(NextManagerError());
  for (const RequestId request : left) pool_->scheduler()->Cancel(request);
  if (!left.empty()) {
    QUIRE_LOG(kInfo) << "worker " << Named("worker", options_->address) << " keeps " << Counted(left.size(), "request")
                     << " for the next manager";
  }
  FailAll(ShuttingDownError());
}

std::string WorkerSession::CauseOfAbsence(int64_t now_us) const {
  if (link_.is_ready()) return "";
  const absl::Status& error = link_.last_error();
  // Why the manager refuses a worker is in the log. The reason may have its address.
  const std::string cause =
      absl::IsFailedPrecondition(error) ? "the manager cannot use the worker" : CauseForClients(error);
  return absl::StrFormat("its worker has not been there for %d ms%s%s", (now_us - lost_since_us_) / 1000,
                         cause.empty() ? "" : "; ", cause);
}

bool WorkerSession::MayReturn(int64_t now_us) const {
  return pool_ != nullptr && !link_.is_ready() && now_us < lost_since_us_ + options_->worker_grace_us;
}

void WorkerSession::Lose(absl::Status reason, int64_t now_us, Blame blame) {
  if (link_.is_ready()) {
    QUIRE_LOG(kWarning) << "worker " << Named("worker", options_->address) << " lost in epoch "
                        << Named("epoch", link_.epoch()) << " after " << Named("step", link_.num_steps())
                        << " steps: " << reason.message() << "; it had " << Counted(live_->size(), "request");
    is_taken_over_ = IsTakenOver(reason);
    ++report_->stats()->worker_losses;
    report_->stats()->interruptions += pool_->scheduler()->counts().running;
    NoteEnd(now_us);
    live_->NoteLoss([this](RequestId request) {
      const SequenceGroup* const group = pool_->scheduler()->FindGroup(request);
      return group != nullptr && group->is_running();
    });
    // A worker that was told to stop is lost when its time is up, and a session ends when another manager opens one.
    const bool is_blameless = blame == Blame::kNobody || IsTakenOver(reason) || HasReason(reason, kRanksDiffer);
    if (is_blameless || drain_ != Drain::kNone) {
      pool_->scheduler()->AbandonAll();
    } else {
      AbandonLost(reason);
    }
    tables_.OnLost(reason);
  } else {
    LogFailedAttempt(reason, now_us);
  }
  EndAttemptOrSession(std::move(reason), now_us);
}

void WorkerSession::NoteEnd(int64_t now_us) {
  lost_since_us_ = now_us;
  failover_at_us_ = now_us + options_->failover_after_us;
}

void WorkerSession::EndAttemptOrSession(absl::Status reason, int64_t now_us) {
  drain_ = Drain::kNone;
  is_fenced_ = false;
  next_move_us_ = 0;
  report_->wait()->OnLost();
  link_.Lose(std::move(reason), now_us);
  has_tried_ = has_tried_ || !link_.adopts_again();
}

// Logs every reason once. At first, a worker that nobody has started yet is no more than a line of information.
void WorkerSession::LogFailedAttempt(const absl::Status& reason, int64_t now_us) {
  if (absl::IsUnavailable(reason) && now_us < lost_since_us_ + kQuietStartUs) {
    if (!std::exchange(has_logged_waiting_, true)) {
      QUIRE_LOG(kInfo) << "waiting for worker " << Named("worker", options_->address);
    }
  } else if (std::string said = WithoutNumbers(reason); said != logged_reason_) {
    const char* const advice =
        MayBeTlsMismatch(reason.message())
            ? "; does the worker speak TLS (--worker-tls-ca), under another name (--worker-name), "
              "and ask for a certificate (--worker-tls-cert)?"
            : "";
    const char* const trouble = absl::IsUnavailable(reason) ? " is not ready: " : " cannot be used: ";
    QUIRE_LOG(kWarning) << "worker " << Named("worker", options_->address) << trouble << reason.message() << advice;
    logged_reason_ = std::move(said);
  }
}

void WorkerSession::AbandonLost(const absl::Status& reason) {
  const std::vector<Convict> convicts = pool_->scheduler()->AbandonLost(NamedSequence(reason));
  if (!convicts.empty()) link_.ForgiveLosses();
  for (const Convict& convict : convicts) {
    QUIRE_LOG(kWarning) << "request " << Value(convict.request) << " failed: worker "
                        << Named("worker", options_->address) << " was lost while it computed this request alone, and "
                        << convict.num_losses << " times in all: " << reason.message();
    live_->Fail(convict.request, ConvictedError(convict, reason));
  }
  const int num_suspects = pool_->scheduler()->counts().suspects;
  if (num_suspects == 0) return;
  QUIRE_LOG(kWarning) << Counted(num_suspects, "request") << " of worker " << Named("worker", options_->address)
                      << " may be the reason for its losses; each of them runs alone, and the others wait meanwhile";
}

void WorkerSession::FailAll(absl::FunctionRef<absl::Status(const LiveRequests::Entry&)> status_of) {
  // The key is the reason, because requests that have begun may have another one.
  std::map<std::string, int> num_failed;
  const auto failed = live_->FailAll([&](const LiveRequests::Entry& entry) {
    absl::Status status = status_of(entry);
    ++num_failed[std::string(status.message())];
    return status;
  });
  for (const RequestId request : failed) pool_->scheduler()->Cancel(request);
  for (const auto& [reason, count] : num_failed) {
    QUIRE_LOG(kWarning) << Counted(count, "request") << " of worker " << Named("worker", options_->address)
                        << " failed: " << reason;
  }
}

}  // namespace quire
