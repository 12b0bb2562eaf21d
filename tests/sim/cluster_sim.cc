#include "tests/sim/cluster_sim.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kv_manager/engine/placement.h"
#include "tests/sim/placement_audit.h"
#include "tests/sim/violation.h"

namespace quire {
ClusterSim::ClusterSim(const Scenario& scenario)
    : scenario_(scenario), model_{.vocab_size = scenario.model.vocab, .stop_percent = scenario.model.stop_percent} {
  for (const SimWorker& worker : scenario.workers) {
    engines_.push_back(std::make_unique<SimEngine>(worker, model_, &clock_));
  }
}

absl::Status ClusterSim::Run() {
  for (const SimEvent& event : scenario_.events) {
    clock_.Advance(kMicrosPerEvent);
    QUIRE_RETURN_IF_ERROR(Handle(event));
  }
  QUIRE_RETURN_IF_ERROR(Finish());
  for (const auto& engine : engines_) {
    std::vector<std::shared_ptr<SimCaller>> callers;
    for (const auto& [id, placed] : placed_) {
      if (placed.engine == engine.get() && !SimEngine::IsRefusal(placed.caller->failure())) {
        callers.push_back(placed.caller);
      }
    }
    QUIRE_RETURN_IF_ERROR(engine->CheckEnd(callers));
  }
  return absl::OkStatus();
}

absl::Status ClusterSim::Handle(const SimEvent& event) {
  const auto placed = placed_.find(event.subject);
  const auto engine = [&] { return engines_[event.subject].get(); };
  switch (event.kind) {
    case SimEventKind::kSubmit:
      return Submit(scenario_.requests.at(event.subject));
    case SimEventKind::kCancel:
      if (placed != placed_.end()) placed->second.engine->Cancel(placed->second.caller.get());
      return absl::OkStatus();
    case SimEventKind::kCancelSample:
      if (placed != placed_.end()) {
        placed->second.engine->CancelSample(placed->second.caller.get(), event.argument);
      }
      return absl::OkStatus();
    case SimEventKind::kPlan:
      return engine()->RunRound();
    case SimEventKind::kCommit:
      return engine()->Answer();
    case SimEventKind::kLose:
      engine()->Lose();
      return absl::OkStatus();
    case SimEventKind::kReturn:
      engine()->Return(event.argument);
      return absl::OkStatus();
    case SimEventKind::kLateResult:
      engine()->RepeatLastResult();
      return absl::OkStatus();
    case SimEventKind::kProbe:
      return Probe(event.subject);
    case SimEventKind::kDrain:
      engine()->Drain();
      return absl::OkStatus();
    case SimEventKind::kSetDraining:
      return engine()->SetDraining(event.argument != 0);
    case SimEventKind::kSilence:
      engine()->SetSilent(event.argument != 0);
      return absl::OkStatus();
    case SimEventKind::kAsk:
      engine()->Ask();
      return absl::OkStatus();
    case SimEventKind::kAudit:
      engine()->Audit(static_cast<SimAudit>(event.argument));
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
  built.arrival_us = clock_.NowMicros();
  built.deadline_us = request.deadline == 0 ? kNever : clock_.NowMicros() + request.deadline * kMicrosPerEvent;
  const int num_prompt_tokens = static_cast<int>(built.prompt.size());
  const PlacementRequest wanted{.num_prompt_tokens = num_prompt_tokens,
                                .num_rows = NumRows(built),
                                .max_blocks = [&](int block_size) { return MostBlocks(built, block_size); }};
  std::vector<WorkerLoad> loads;
  for (const auto& engine : engines_) {
    QUIRE_ASSIGN_OR_RETURN(loads.emplace_back(), engine->Load(built));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::optional<int> chosen, ChooseWorkerAudited(loads, wanted));
  if (!chosen.has_value()) {
    ++num_unplaced_;
    return absl::OkStatus();
  }
  std::optional<Poison> poison;
  if (request.poison > 0) {
    poison = {built.sampling.seed, request.poison - 1, request.named != 0};
    if (request.poison_sample > 0) poison->sample = request.poison_sample - 1;
  }
  const auto caller = std::make_shared<SimCaller>(std::move(built), model_, poison);
  SimEngine* const engine = engines_[*chosen].get();
  placed_[request.id] = {caller, engine};
  return engine->Submit(caller);
}

absl::Status ClusterSim::Probe(int request) {
  const auto placed = placed_.find(request);
  if (placed == placed_.end()) return absl::OkStatus();
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
    const int num_starts = has_poisons ? 20 : 1;
    max_rounds +=
        num_starts * 20 * (static_cast<int64_t>(request.prompt.size()) + request.max_tokens) * NumRows(request);
  }
  for (const auto& engine : engines_) engine->SetSilent(false);
  for (int64_t round = 0; round < max_rounds; ++round) {
    bool is_over = true;
    bool has_happened = false;
    int64_t wake_us = kNever;
    clock_.Advance(kMicrosPerEvent);
    for (const auto& engine : engines_) {
      engine->Return(/*num_blocks=*/0);
      QUIRE_RETURN_IF_ERROR(engine->Answer());
      if (engine->IsRoundDue()) {
        has_happened = true;
        QUIRE_RETURN_IF_ERROR(engine->RunRound());
      }
      is_over &= engine->is_idle();
      wake_us = std::min(wake_us, engine->wake_us());
    }
    if (is_over) return absl::OkStatus();
    if (has_happened) continue;
    if (wake_us == kNever) return Violation("all loops sleep, and requests have not ended");
    clock_.Advance(std::max<int64_t>(wake_us - clock_.NowMicros(), 0));
  }
  return Violation("requests have not ended after ", max_rounds, " rounds");
}

SimReport ClusterSim::Report() const {
  SimReport report;
  for (const auto& engine : engines_) report.Add(engine->Report());
  report.scenarios = 1;
  report.refused += num_unplaced_;
  return report;
}

uint64_t ClusterSim::digest() const {
  uint64_t digest = 0;
  for (const auto& engine : engines_) digest = MixBits(digest + engine->digest());
  return digest;
}

}  // namespace quire
