// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/cluster_sim.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "kv_manager/engine/placement.h"
#include "tests/sim/placement_audit.h"
#include "tests/sim/violation.h"

namespace quire {
namespace {

// The longest time until a loop tries again to give a request away.
constexpr int64_t kMoveIntervalUs = 100 * kMicrosPerEvent;
// Number of rounds in which the others had nothing to do, after which workers that are lost for ever return.
constexpr int kIdleRoundsToReturn = 300;
// Number of rounds in which clients try to restart requests that the manager has lost.
constexpr int kMaxRoundsOver = 100;

// The result borrows `request`.
PlacementRequest ToPlace(const Request& request) {
  return {.generation = request.generation,
          .num_prompt_tokens = static_cast<int>(request.prompt.size()),
          .num_rows = NumRows(request),
          .max_blocks = [&request](const CacheGroups& groups) { return MostBlocks(request, groups); }};
}

}  // namespace

ClusterSim::ClusterSim(const Scenario& scenario)
    : scenario_(scenario),
      has_other_numerics_(std::any_of(scenario.workers.begin(), scenario.workers.end(), [&](const SimWorker& worker) {
        return worker.numerics != scenario.workers[0].numerics;
      })) {
  for (const SimWorker& worker : scenario.workers) {
    engines_.push_back(std::make_unique<SimEngine>(worker, ModelOf(worker), &clock_, HooksOfEngine()));
  }
}

ShadowModel ClusterSim::ModelOf(const SimWorker& worker) const {
  return {
      .vocab_size = scenario_.model.vocab, .stop_percent = scenario_.model.stop_percent, .numerics = worker.numerics};
}

std::string ClusterSim::OtherNumerics(const SimEngine* engine) const {
  std::set<std::string> others;
  for (size_t i = 0; i < engines_.size(); ++i) {
    if (engines_[i]->generation() == engine->generation() || !engines_[i]->Load().is_ready) continue;
    others.insert(scenario_.workers[i].Description().numerics_fingerprint);
  }
  return absl::StrJoin(others, ", ");
}

GenerationId ClusterSim::GenerationOf(const SimRequest& request) const {
  const GenerationId wanted = engines_[request.id % engines_.size()]->generation();
  const SimEngine* ready = nullptr;
  for (const auto& engine : engines_) {
    if (!engine->is_ready()) continue;
    if (engine->generation() == wanted) return wanted;
    ready = engine.get();
  }
  return ready == nullptr ? wanted : ready->generation();
}

size_t ClusterSim::IndexOf(const SimEngine* engine) const {
  return std::find_if(engines_.begin(), engines_.end(), [&](const auto& other) { return other.get() == engine; }) -
         engines_.begin();
}

SimEngine::Hooks ClusterSim::HooksOfEngine() {
  return {.move = [this](SimEngine* from, const MoveWish& wish, TakeRequest take) { return Move(from, wish, take); },
          .find = [this](SimEngine* from, absl::Span<const MoveWish> wishes) { return FindMovable(from, wishes); },
          .restore = [this](SimEngine* to, const RequestToRestore& found) { return Restore(to, found); },
          .others = [this](const SimEngine* engine) { return OtherNumerics(engine); }};
}

absl::Status ClusterSim::Run() {
  for (const SimEvent& event : scenario_.events) {
    clock_.Advance(kMicrosPerEvent);
    QUIRE_RETURN_IF_ERROR(Handle(event));
    QUIRE_RETURN_IF_ERROR(ReturnClients());
  }
  QUIRE_RETURN_IF_ERROR(Finish());
  std::vector<std::shared_ptr<SimCaller>> callers;
  std::map<const SimEngine*, CallerTotals> totals;
  for (const auto& [id, placed] : placed_) {
    if (SimEngine::IsRefusal(placed.caller->failure())) continue;
    callers.push_back(placed.caller);
    if (placed.engine != nullptr) totals[placed.engine].Add(*placed.caller);
  }
  for (const Replaced& replaced : replaced_) totals[replaced.engine].Add(*replaced.caller);
  for (const auto& engine : engines_) QUIRE_RETURN_IF_ERROR(engine->CheckEnd(totals[engine.get()], callers));
  return absl::OkStatus();
}

absl::Status ClusterSim::Handle(const SimEvent& event) {
  const auto placed = placed_.find(event.subject);
  const auto engine = [&] { return engines_[event.subject].get(); };
  switch (event.kind) {
    case SimEventKind::kSubmit:
      return Submit(scenario_.requests.at(event.subject));
    case SimEventKind::kCancel:
      if (placed == placed_.end()) return absl::OkStatus();
      placed->second.is_settled = true;
      if (placed->second.engine != nullptr) placed->second.engine->Cancel(placed->second.caller.get());
      return absl::OkStatus();
    case SimEventKind::kCancelSample:
      if (placed != placed_.end() && placed->second.engine != nullptr) {
        placed->second.engine->CancelSample(placed->second.caller.get(), event.argument);
      }
      return absl::OkStatus();
    case SimEventKind::kPlan:
      return RunRound(engine());
    case SimEventKind::kCommit:
      if (event.argument == 0) return engine()->Answer();
      return engine()->Answer(/*lagging=*/event.argument - 1);
    case SimEventKind::kLose:
      engine()->Lose(event.argument);
      return absl::OkStatus();
    case SimEventKind::kLoseForEver:
      LoseForEver(event.subject);
      return absl::OkStatus();
    case SimEventKind::kReturn:
      if (!gone_.contains(engine())) engine()->Return(event.argument);
      return absl::OkStatus();
    case SimEventKind::kLateResult:
      engine()->RepeatLastResult();
      return absl::OkStatus();
    case SimEventKind::kProbe:
      return Probe(event.subject);
    case SimEventKind::kDrain:
      engine()->Drain(event.argument);
      return absl::OkStatus();
    case SimEventKind::kSetDraining:
      return engine()->SetDraining(event.argument != 0, /*migrates=*/event.argument == 2);
    case SimEventKind::kSilence:
      engine()->SetSilent(event.argument != 0, event.argument < 2 ? std::nullopt : std::optional(event.argument - 2));
      return absl::OkStatus();
    case SimEventKind::kDiverge:
      engine()->Diverge(event.argument);
      return absl::OkStatus();
    case SimEventKind::kAsk:
      engine()->Ask();
      return absl::OkStatus();
    case SimEventKind::kAudit:
      engine()->Audit(static_cast<SimAudit>(event.argument));
      return absl::OkStatus();
    case SimEventKind::kManagerLost:
      LoseManager(event.subject);
      return absl::OkStatus();
    case SimEventKind::kDamage:
      engine()->Damage(static_cast<SimDamage>(event.argument));
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status ClusterSim::Submit(const SimRequest& request) {
  std::vector<TokenId> transcript;
  if (const auto before = placed_.find(request.follows); before != placed_.end()) {
    transcript = before->second.caller->Transcript(0);
  }
  Request built = request.Build(transcript);
  if (built.prompt.empty() || placed_.contains(request.id)) return absl::OkStatus();
  built.generation = GenerationOf(request);
  built.arrival_us = clock_.NowMicros();
  built.deadline_us = request.deadline == 0 ? kNever : clock_.NowMicros() + request.deadline * kMicrosPerEvent;
  QUIRE_ASSIGN_OR_RETURN(SimEngine* const engine, Place(built));
  if (engine == nullptr) {
    ++num_unplaced_;
    return absl::OkStatus();
  }
  std::optional<Poison> poison;
  if (request.poison > 0) {
    poison = {built.sampling.seed, request.poison - 1, request.named == 1, request.named == 2};
    if (request.poison_sample > 0) poison->sample = request.poison_sample - 1;
  }
  const auto caller = std::make_shared<SimCaller>(std::move(built), engine->model(), poison);
  placed_[request.id] = {.caller = caller, .engine = engine, .holders = {IndexOf(engine)}};
  return engine->Submit(caller);
}

absl::StatusOr<SimEngine*> ClusterSim::Place(const Request& request) {
  std::vector<WorkerLoad> loads;
  for (const auto& engine : engines_) {
    QUIRE_ASSIGN_OR_RETURN(loads.emplace_back(), engine->Load(request));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::optional<int> chosen, ChooseWorkerAudited(loads, ToPlace(request)));
  return chosen.has_value() ? engines_[*chosen].get() : nullptr;
}

size_t ClusterSim::FindMovable(const SimEngine* from, absl::Span<const MoveWish> wishes) const {
  const auto can_move = [&](const MoveWish& wish) {
    return std::any_of(engines_.begin(), engines_.end(), [&](const auto& engine) {
      return engine.get() != from && CanTakeOver(engine->Load(), ToPlace(wish.request()), wish.needs());
    });
  };
  return std::find_if(wishes.begin(), wishes.end(), can_move) - wishes.begin();
}

bool ClusterSim::Move(SimEngine* from, const MoveWish& wish, TakeRequest take) {
  const RequestId id = wish.request().id;
  Placed& placed = placed_.at(static_cast<int>(Value(id)));
  if (placed.engine != from) return false;  // It was replaced, and its cancel is on the way.
  if (HasReplaced(id)) return false;
  const PlacementRequest wanted = ToPlace(wish.request());
  std::vector<WorkerLoad> loads;
  for (const auto& engine : engines_) {
    const absl::StatusOr<WorkerLoad> load = engine->Load(wish.request());
    status_.Update(load.status());
    if (!status_.ok()) return false;
    loads.push_back(*load);
    loads.back().is_ready &= engine.get() != from;
  }
  const std::vector<WorkerLoad> before = loads;
  if (!KeepTargets(wanted, wish.needs(), absl::MakeSpan(loads))) return false;
  const absl::StatusOr<std::optional<int>> chosen = ChooseWorkerAudited(loads, wanted);
  status_.Update(chosen.status());
  if (!status_.ok()) return false;
  const WorkerLoad& target = before[**chosen];
  const int64_t num_free = target.num_free_blocks - target.wanted_blocks;
  const int64_t num_needed = SimEngine::BlocksOf(wish.group, target.groups);
  if (wish.needs_room && num_free < num_needed) {
    status_.Update(Violation("a request of ", num_needed, " blocks moves to ", num_free, " free blocks"));
  }
  if (wish.needs_room && target.num_rows + NumRows(wish.request()) > target.max_sequences) {
    status_.Update(Violation("a request of ", NumRows(wish.request()), " rows moves to ", target.num_rows, " of ",
                             target.max_sequences, " rows"));
  }
  if (wish.wants_idle && (target.num_waiting > 0 || 100 * (num_free - num_needed) < 30 * target.num_blocks)) {
    status_.Update(Violation("a waiting request moves to a worker with ", target.num_waiting, " waiting requests and ",
                             num_free, " free blocks of ", target.num_blocks, ", it needs ", num_needed));
  }
  if (!MayMove(from, wish.request(), wish.accepts_delay, wish.family != FamilyId{0}))
    status_.Update(Violation("a request moves although no worker can take it"));
  SimEngine* const to = engines_[**chosen].get();
  if (to->generation() != wish.request().generation) {
    const bool has_own = HasOtherWorker(from, wish.request(), /*accepts_delay=*/true, /*is_own_generation=*/true);
    if (wish.family == FamilyId{0} || has_own) status_.Update(Violation("a request moves to other numerics"));
    ++num_renumbered_;
  }
  const bool is_renumbered = to->generation() != wish.request().generation;
  MovingRequest moving = take();
  if (is_renumbered) {
    placed.holders.clear();
    placed.first_move = moving.request.group().progress().num_moves;
  }
  placed.holders.insert(IndexOf(to));
  placed.caller->OnMoved(to->generation(), to->model());
  to->Adopt(std::move(moving), from->Release(id));
  placed.engine = to;
  return true;
}

bool ClusterSim::HasReplaced(RequestId id) const {
  return std::any_of(replaced_.begin(), replaced_.end(), [&](const Replaced& replaced) {
    return replaced.caller->request().id == id && !replaced.caller->has_ended();
  });
}

bool ClusterSim::MayMove(const SimEngine* from, const Request& request, bool accepts_delay,
                         bool changes_numerics) const {
  if (HasOtherWorker(from, request, accepts_delay, /*is_own_generation=*/true)) return true;
  return changes_numerics && !HasOtherWorker(from, request, /*accepts_delay=*/true, /*is_own_generation=*/true) &&
         HasOtherWorker(from, request, accepts_delay, /*is_own_generation=*/false);
}

bool ClusterSim::HasOtherWorker(const SimEngine* from, const Request& request, bool accepts_delay,
                                bool is_own_generation) const {
  return std::any_of(engines_.begin(), engines_.end(), [&](const auto& engine) {
    const WorkerLoad load = engine->Load();
    const bool is_late = load.is_overdue || load.is_on_trial;
    const bool is_own = engine->generation() == request.generation;
    return engine.get() != from && is_own == is_own_generation && load.is_ready && !load.is_drained_by_operator &&
           (accepts_delay || !is_late) && NumRows(request) <= load.max_sequences &&
           MostBlocks(request, load.groups) <= load.num_blocks;
  });
}

// Requests of a lost worker must not stay when others can take them.
absl::Status ClusterSim::RunRound(SimEngine* engine) {
  const std::set<RequestId> could_move = engine->Rebalanceable(
      [&](const MoveWish& wish) { return FindMovable(engine, absl::MakeConstSpan(&wish, 1)) == 0; });
  QUIRE_RETURN_IF_ERROR(engine->RunRound());
  QUIRE_RETURN_IF_ERROR(status_);
  QUIRE_RETURN_IF_ERROR(engine->CheckStaying(could_move));
  const int64_t now_us = clock_.NowMicros();
  for (const Request& request : engine->Orphans()) {
    const bool may_move = MayMove(engine, request, /*accepts_delay=*/false, engine->changes_numerics());
    if (!may_move || HasReplaced(request.id)) {
      may_move_since_us_.erase(request.id);
      continue;
    }
    const int64_t since_us = may_move_since_us_.emplace(request.id, now_us).first->second;
    if (now_us > since_us + kMoveIntervalUs) {
      return Violation("request ", Value(request.id), " stays with its lost worker, and another can take it");
    }
  }
  if (engine->is_ready())
    std::erase_if(may_move_since_us_,
                  [&](const auto& entry) { return placed_.at(static_cast<int>(Value(entry.first))).engine == engine; });
  return absl::OkStatus();
}

void ClusterSim::LoseForEver(int worker) {
  engines_[worker]->Lose();
  if (gone_.size() + 1 < engines_.size()) gone_.insert(engines_[worker].get());
}

absl::Status ClusterSim::Probe(int request) {
  const auto placed = placed_.find(request);
  if (placed == placed_.end() || placed->second.engine == nullptr) return absl::OkStatus();
  const SimCaller& caller = *placed->second.caller;
  std::set<BlockId> found;
  return placed->second.engine->Probe(caller.request().cache_salt, caller.Transcript(0), &found);
}

// A loop runs a round when its thread would: when something has come, or when the time has come that the last round has
// returned. So a loop that sleeps too long is found. When nothing happens the clock jumps to the next such time.
absl::Status ClusterSim::Finish() {
  int64_t max_rounds = 2000;
  const bool has_poisons = std::any_of(placed_.begin(), placed_.end(),
                                       [](const auto& entry) { return entry.second.caller->poison().has_value(); });
  for (const auto& [id, placed] : placed_) {
    const Request& request = placed.caller->request();
    // A suspect runs alone, and every loss makes everybody start again.
    const int num_starts = has_poisons ? 20 : static_cast<int>(engines_.size());
    max_rounds +=
        num_starts * 20 * (static_cast<int64_t>(request.prompt.size()) + request.max_tokens) * NumRows(request);
  }
  for (const auto& engine : engines_) engine->SetSilent(false);
  int num_rounds_over = 0;  // Rounds in which only clients wait that no worker takes.
  int num_idle_rounds = 0;  // Of the workers that are not lost for ever.
  for (int64_t round = 0; round < max_rounds; ++round) {
    bool is_over = true;
    bool are_others_idle = true;
    bool has_happened = false;
    int64_t wake_us = kNever;
    clock_.Advance(kMicrosPerEvent);
    for (const auto& engine : engines_) {
      const bool is_gone = gone_.contains(engine.get());
      if (!is_gone) engine->Return(/*num_blocks=*/0);
      QUIRE_RETURN_IF_ERROR(engine->Answer());
      if (engine->IsRoundDue()) {
        has_happened = true;
        QUIRE_RETURN_IF_ERROR(RunRound(engine.get()));
      }
      wake_us = std::min(wake_us, engine->wake_us());
    }
    QUIRE_RETURN_IF_ERROR(ReturnClients());
    // A round of one loop may have given a request to an earlier one.
    for (const auto& engine : engines_) {
      const bool is_gone = gone_.contains(engine.get());
      is_over &= is_gone ? engine->is_empty() : engine->is_idle();
      are_others_idle &= is_gone || engine->is_idle();
    }
    const bool do_all_have_answers = std::all_of(placed_.begin(), placed_.end(), [](const auto& entry) {
      return entry.second.engine != nullptr || IsSettled(entry.second);
    });
    if (is_over && do_all_have_answers && unwanted_.empty()) return absl::OkStatus();
    if (is_over && ++num_rounds_over < kMaxRoundsOver) continue;
    if (is_over) {
      GiveUp();
      return absl::OkStatus();
    }
    num_idle_rounds = are_others_idle ? num_idle_rounds + 1 : 0;
    // No other worker can continue with what is left.
    if (num_idle_rounds > kIdleRoundsToReturn) gone_.clear();
    if (has_happened) continue;
    if (wake_us == kNever) return Violation("all loops sleep, and requests have not ended");
    clock_.Advance(std::max<int64_t>(wake_us - clock_.NowMicros(), 0));
  }
  return Violation("requests have not ended after ", max_rounds, " rounds");
}

SimReport ClusterSim::Report() const {
  SimReport report;
  for (const auto& engine : engines_) report.Add(engine->Report());
  report.Add(lost_);
  report.scenarios = 1;
  report.refused += num_unplaced_;
  report.renumbered += num_renumbered_;
  return report;
}

uint64_t ClusterSim::digest() const {
  uint64_t digest = lost_digest_;
  for (const auto& engine : engines_) digest = MixBits(digest + engine->digest());
  return digest;
}

}  // namespace quire
