// SPDX-License-Identifier: Apache-2.0

// The part of ClusterSim that replaces the manager.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tests/sim/cluster_sim.h"
#include "tests/sim/violation.h"

namespace quire {
namespace {

// How long a new manager waits until all workers have come.
constexpr int64_t kAdoptWindowUs = 30 * kMicrosPerEvent;
// How long a request that nobody wants runs.
constexpr int64_t kUnwantedUs = 20 * kMicrosPerEvent;

}  // namespace

bool ClusterSim::IsSettled(const Placed& placed) {
  const SimCaller& caller = *placed.caller;
  return placed.is_settled || caller.has_ended() || caller.is_cancel_posted() || caller.WantsEnd();
}

void ClusterSim::LoseManager(int num_plans) {
  for (auto& [id, placed] : placed_) {
    placed.is_settled = IsSettled(placed);
    placed.last_engine = placed.engine;
    placed.engine = nullptr;
    placed.copy.reset();
    placed.left_copies.clear();
    placed.caller->OnManagerLost();
  }
  for (const Replaced& replaced : replaced_) replaced.caller->OnManagerLost();
  replaced_.clear();
  may_move_since_us_.clear();
  unwanted_.clear();
  adopts_until_us_ = clock_.NowMicros() + kAdoptWindowUs;
  std::set<const SimEngine*> still_gone;
  for (size_t i = 0; i < engines_.size(); ++i) {
    lost_.Add(engines_[i]->Report());
    lost_digest_ = MixBits(lost_digest_ + engines_[i]->digest() + 1);
    const bool is_gone = gone_.contains(engines_[i].get());
    SimEngine::Remains remains = engines_[i]->Die(num_plans);
    const SimEngine* const last = engines_[i].get();
    auto next = std::make_unique<SimEngine>(scenario_.workers[i], ModelOf(scenario_.workers[i]), &clock_,
                                            HooksOfEngine(), std::move(remains));
    for (auto& [id, placed] : placed_) {
      if (placed.last_engine == last) placed.last_engine = next.get();
    }
    engines_[i] = std::move(next);
    if (is_gone) still_gone.insert(engines_[i].get());
  }
  gone_ = std::move(still_gone);
  ++lost_.manager_losses;
}

// A client that this manager has served already is not served twice: what another worker has of its request is dropped.
absl::StatusOr<SimEngine::Restored> ClusterSim::Restore(SimEngine* to, const RequestToRestore& found) {
  const std::optional<int> id = RequestOfRecord(found.record);
  const auto client = id.has_value() ? placed_.find(*id) : placed_.end();
  if (client == placed_.end()) {
    status_.Update(Violation("nobody has sent '", found.record, "'"));
    return absl::NotFoundError("nobody has sent the request");
  }
  Placed& placed = client->second;
  if (found.prompt != absl::MakeConstSpan(placed.caller->request().prompt)) {
    status_.Update(Violation("the record of request ", *id, " is with another prompt"));
  }
  if (found.record != *placed.caller->request().record) {
    return absl::AlreadyExistsError("the client has started the request again");
  }
  const std::shared_ptr<SimCaller> caller = placed.caller->RestoredOn(to->generation(), to->model());
  // For every second request, the stream itself knows that it is over.
  return SimEngine::Restored{caller, /*is_unwanted=*/IsSettled(placed) && *id % 2 == 0,
                             [this, to, id = *id, caller](const RestoredCopy& copy, bool ran_last) {
                               return Keep(to, id, caller, copy, ran_last);
                             }};
}

// As ResumableRequests does, for numerics that repeat tokens. Where the request ran last, it continues.
absl::Status ClusterSim::Keep(SimEngine* to, int id, std::shared_ptr<SimCaller> caller, const RestoredCopy& copy,
                              bool ran_last) {
  Placed& placed = placed_.at(id);
  const bool is_last = ran_last && placed.last_engine == to && !placed.has_lost_track;
  const bool is_settled = IsSettled(placed);
  if (!placed.holders.contains(IndexOf(to)) || copy.num_moves < placed.first_move) {
    ++lost_.left_behind;
    const bool has_last = placed.engine != nullptr && placed.copy.has_value() && !placed.has_lost_track;
    if (has_last && IsLaterCopy(copy, *placed.copy)) {
      status_.Update(
          Violation("rows of request ", id, " with numerics that it has left replace those where it ran last"));
    }
    placed.left_copies.push_back(copy);
    return absl::AlreadyExistsError("the client has other tokens");
  }
  for (const RestoredCopy& left : placed.left_copies) {
    if (!is_last || IsLaterCopy(copy, left)) continue;
    status_.Update(Violation("request ", id, " continues with rows whose numerics it has left, not where it ran last"));
  }
  if (placed.engine != nullptr) {
    const bool may_replace = placed.copy.has_value() && !is_settled;
    const bool is_later = may_replace && IsLaterCopy(copy, *placed.copy);
    if (may_replace && is_last && !is_later) {
      status_.Update(Violation("request ", id, " continues with old rows, not where it ran last"));
    }
    if (is_later && placed.last_engine == placed.engine && !placed.has_lost_track) {
      status_.Update(Violation("old rows of request ", id, " replace those where it ran last"));
    }
    if (!is_later || placed.caller->num_tokens() >= copy.num_all_tokens()) {
      return absl::AlreadyExistsError("another worker has the request");
    }
    placed.engine->Cancel(placed.caller.get());
    replaced_.push_back({placed.caller, placed.engine});
  }
  placed.caller = std::move(caller);
  placed.engine = to;
  placed.copy = copy;
  placed.is_settled = is_settled;
  placed.has_lost_track = !is_last;
  if (is_settled && id % 2 == 1) unwanted_[id] = clock_.NowMicros() + kUnwantedUs;
  return absl::OkStatus();
}

bool ClusterSim::IsAdopting() const {
  return clock_.NowMicros() < adopts_until_us_ &&
         std::any_of(engines_.begin(), engines_.end(), [](const auto& engine) { return !engine->Load().has_tried; });
}

void ClusterSim::GiveUp() {
  for (auto& [id, placed] : placed_) {
    if (placed.engine != nullptr || IsSettled(placed)) continue;
    placed.is_settled = true;
    ++num_unplaced_;
  }
}

absl::Status ClusterSim::ReturnClients() {
  if (lost_.manager_losses == 0) return absl::OkStatus();
  for (auto it = unwanted_.begin(); it != unwanted_.end();) {
    if (clock_.NowMicros() < it->second) {
      ++it;
      continue;
    }
    const Placed& placed = placed_.at(it->first);
    placed.engine->Cancel(placed.caller.get());
    it = unwanted_.erase(it);
  }
  if (IsAdopting()) return absl::OkStatus();
  for (auto& [id, placed] : placed_) {
    if (placed.engine == nullptr && !IsSettled(placed)) QUIRE_RETURN_IF_ERROR(StartAgain(&placed));
  }
  return absl::OkStatus();
}

// Where workers have other numerics, the new request may get other tokens.
absl::Status ClusterSim::StartAgain(Placed* placed) {
  const Request& request = placed->caller->request();
  if (request.deadline_us <= clock_.NowMicros()) {
    placed->is_settled = true;
    return absl::OkStatus();
  }
  Request again = request;
  const int id = static_cast<int>(Value(request.id));
  if (has_other_numerics_) again.generation = GenerationOf(scenario_.requests.at(id));
  QUIRE_ASSIGN_OR_RETURN(SimEngine* const engine, Place(again));
  if (engine == nullptr) return absl::OkStatus();  // It tries again.
  std::string record = RecordOf(id, ++placed->num_repeats);
  placed->caller = has_other_numerics_
                       ? placed->caller->BegunAgain(again.generation, engine->model(), std::move(record))
                       : placed->caller->SentAgain(std::move(record));
  placed->engine = engine;
  placed->has_lost_track = false;
  placed->holders = {IndexOf(engine)};
  placed->first_move = 0;
  ++lost_.resubmitted;
  return engine->Submit(placed->caller);
}

}  // namespace quire
