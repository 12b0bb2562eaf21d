#include "tests/sim/cluster_sim.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kv_manager/engine/placement.h"

namespace quire {
namespace {

template <typename... Parts>
absl::Status Violation(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}

}  // namespace

ClusterSim::ClusterSim(const Scenario& scenario)
    : scenario_(scenario), model_{.vocab_size = scenario.model.vocab, .stop_percent = scenario.model.stop_percent} {
  for (const SimWorker& worker : scenario.workers) engines_.push_back(std::make_unique<SimEngine>(worker, model_));
}

absl::Status ClusterSim::Run() {
  for (const SimEvent& event : scenario_.events) {
    ++now_;
    for (const auto& engine : engines_) QUIRE_RETURN_IF_ERROR(engine->Expire(now_));
    QUIRE_RETURN_IF_ERROR(Handle(event));
  }
  QUIRE_RETURN_IF_ERROR(Drain());
  for (const auto& engine : engines_) {
    std::vector<std::shared_ptr<SimCaller>> callers;
    for (const auto& [id, placed] : placed_) {
      if (placed.engine == engine.get()) callers.push_back(placed.caller);
    }
    QUIRE_RETURN_IF_ERROR(engine->CheckEnd(callers));
  }
  return absl::OkStatus();
}

absl::Status ClusterSim::Handle(const SimEvent& event) {
  const auto placed = placed_.find(event.subject);
  switch (event.kind) {
    case SimEventKind::kSubmit:
      return Submit(scenario_.requests.at(event.subject));
    case SimEventKind::kCancel:
      return placed == placed_.end() ? absl::OkStatus() : placed->second.engine->Cancel(placed->second.caller.get());
    case SimEventKind::kCancelSample:
      if (placed == placed_.end()) return absl::OkStatus();
      return placed->second.engine->CancelSample(placed->second.caller.get(), event.sample);
    case SimEventKind::kPlan:
      return engines_[event.subject]->Plan();
    case SimEventKind::kCommit:
      return engines_[event.subject]->Commit();
    case SimEventKind::kLose:
      engines_[event.subject]->Lose();
      return absl::OkStatus();
    case SimEventKind::kReturn:
      engines_[event.subject]->Return();
      return absl::OkStatus();
    case SimEventKind::kLateResult:
      return engines_[event.subject]->RepeatLastResult();
    case SimEventKind::kProbe:
      return Probe(event.subject);
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
  const int num_prompt_tokens = static_cast<int>(built.prompt.size());
  const PlacementRequest wanted{.num_prompt_tokens = num_prompt_tokens,
                                .num_rows = NumRows(built),
                                .max_blocks = [&](int block_size) { return MostBlocks(built, block_size); }};
  std::vector<WorkerLoad> loads;
  for (const auto& engine : engines_) loads.push_back(engine->Load(built));
  const std::optional<int> chosen = ChooseWorker(loads, wanted);
  if (!chosen.has_value()) return Violation("no worker was chosen");
  QUIRE_RETURN_IF_ERROR(CheckPlacement(loads, *chosen, wanted));
  auto caller = std::make_shared<SimCaller>(std::move(built), model_);
  SimEngine* const engine = engines_[*chosen].get();
  const int64_t deadline = request.deadline == 0 ? std::numeric_limits<int64_t>::max() : now_ + request.deadline;
  QUIRE_RETURN_IF_ERROR(engine->Submit(caller, deadline, now_));
  if (!caller->has_ended()) placed_[request.id] = {std::move(caller), engine};
  return absl::OkStatus();
}

// Nobody who can hold the request was passed over for one who cannot, nor one who is there for one who is not, nor one
// that is worth more.
absl::Status ClusterSim::CheckPlacement(const std::vector<WorkerLoad>& loads, int chosen,
                                        const PlacementRequest& request) const {
  const auto holds = [&](const WorkerLoad& load) {
    return request.num_rows <= load.max_sequences && request.max_blocks(load.block_size) <= load.num_blocks;
  };
  const auto worth = [&](const WorkerLoad& load) {
    const double free = static_cast<double>(load.num_free_blocks - load.wanted_blocks) / load.num_blocks;
    const double free_rows = 1.0 - static_cast<double>(load.num_requests) / load.max_sequences;
    return static_cast<double>(load.num_cached_tokens) / request.num_prompt_tokens + std::min(free, free_rows);
  };
  const WorkerLoad& ours = loads[chosen];
  for (const WorkerLoad& other : loads) {
    const bool is_better = holds(other) != holds(ours)       ? holds(other)
                           : !holds(ours)                    ? false
                           : other.is_ready != ours.is_ready ? other.is_ready
                                                             : worth(other) > worth(ours) + 1e-6;
    if (is_better) return Violation("worker ", chosen, " was chosen, another is better");
  }
  return absl::OkStatus();
}

absl::Status ClusterSim::Probe(int request) {
  const auto placed = placed_.find(request);
  if (placed == placed_.end()) return absl::OkStatus();
  const SimCaller& caller = *placed->second.caller;
  std::set<BlockId> found;
  return placed->second.engine->Probe(caller.request().cache_salt, caller.Transcript(0), &found);
}

// Each round takes every request that runs a step further.
absl::Status ClusterSim::Drain() {
  int64_t max_rounds = 1000;
  for (const auto& [id, placed] : placed_) {
    const Request& request = placed.caller->request();
    max_rounds += 20 * (static_cast<int64_t>(request.prompt.size()) + request.max_tokens) * NumRows(request);
  }
  for (int64_t round = 0; round < max_rounds; ++round) {
    bool is_over = true;
    ++now_;
    for (const auto& engine : engines_) {
      engine->Return();
      QUIRE_RETURN_IF_ERROR(engine->Expire(now_));
      if (engine->num_live() == 0 && !engine->is_busy()) continue;
      is_over = false;
      while (engine->num_live() > 0 && !engine->is_full()) {
        const uint64_t digest = engine->digest();
        QUIRE_RETURN_IF_ERROR(engine->Plan());
        if (engine->digest() == digest) break;  // The plan was empty.
      }
      QUIRE_RETURN_IF_ERROR(engine->Commit());
    }
    if (is_over) return absl::OkStatus();
  }
  return Violation("requests have not ended after ", max_rounds, " rounds");
}

SimReport ClusterSim::Report() const {
  SimReport report;
  for (const auto& engine : engines_) report.Add(engine->Report());
  report.scenarios = 1;
  return report;
}

uint64_t ClusterSim::digest() const {
  uint64_t digest = 0;
  for (const auto& engine : engines_) digest = MixBits(digest + engine->digest());
  return digest;
}

}  // namespace quire
