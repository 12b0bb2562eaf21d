// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_CLUSTER_SIM_H_
#define QUIRE_TESTS_SIM_CLUSTER_SIM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_caller.h"
#include "tests/sim/sim_engine.h"
#include "tests/sim/sim_report.h"

namespace quire {

// Runs a scenario: the step loops of one to three shadow workers, in one thread and with a clock that advances by one
// millisecond per event. The invariants are checked after every event. Equal scenarios give equal runs.
//
// When the manager is lost, the workers stay, and so do the clients: each of them wants the rest of its request. The
// new manager takes over what the workers have kept. Clients whose requests it does not have when the adoption is over
// start them again. What it takes over of clients that want nothing any more is cancelled later.
class ClusterSim {
 public:
  // `scenario` is borrowed.
  explicit ClusterSim(const Scenario& scenario);

  // The error names the first contradiction. Called once.
  absl::Status Run();

  SimReport Report() const;
  uint64_t digest() const;  // A hash of all plans of all workers.

 private:
  struct Placed {
    std::shared_ptr<SimCaller> caller;
    SimEngine* engine;        // Null: this manager does not have the request.
    bool is_settled = false;  // The client wants nothing any more.
    // The workers whose rows of the request, if there are any, have the tokens of its client. When the request gets
    // other numerics, its other workers still have what it was before.
    std::set<size_t> holders = {};
    int first_move = 0;   // The number of moves at which holders began. Rows with fewer moves are left ones.
    int num_repeats = 0;  // See RecordOf.
    // What another manager has left on the worker, if the request continues that.
    std::optional<RestoredCopy> copy = std::nullopt;
    std::vector<RestoredCopy> left_copies = {};  // Refused copies of workers that are no holders.
    const SimEngine* last_engine = nullptr;      // Engine of its worker, if it ran there when the last manager died.
    bool has_lost_track = false;                 // Whether it continued with rows that were perhaps not the last ones.
  };
  // A stream that a later copy of the request has replaced.
  struct Replaced {
    std::shared_ptr<SimCaller> caller;
    const SimEngine* engine;
  };

  absl::Status Handle(const SimEvent& event);
  absl::Status Submit(const SimRequest& request);
  absl::Status Probe(int request);
  // Gives a request to another engine, as the manager does, see SimEngine::MoveHook.
  bool Move(SimEngine* from, const MoveWish& wish, TakeRequest take);
  size_t FindMovable(const SimEngine* from, absl::Span<const MoveWish> wishes) const;
  absl::Status RunRound(SimEngine* engine);
  // Returns whether another engine of this generation can hold the request now. Its worker is ready and gets requests.
  bool HasOtherWorker(const SimEngine* from, const Request& request, bool accepts_delay, bool is_own_generation) const;
  // Whether an engine still has a stream of this request that a later copy has replaced. Until its cancel is handled,
  // the request must not come to this engine, because both have the same id. In production, their ids differ.
  bool HasReplaced(RequestId id) const;
  // Returns whether a request of a lost worker can move, see WorkerSession.
  bool MayMove(const SimEngine* from, const Request& request, bool accepts_delay, bool changes_numerics) const;
  ShadowModel ModelOf(const SimWorker& worker) const;
  // The numerics of the ready workers of another generation, or "".
  std::string OtherNumerics(const SimEngine* engine) const;
  // The generation of a new request. It has a ready worker: the chosen one if that is ready, and otherwise any.
  GenerationId GenerationOf(const SimRequest& request) const;
  SimEngine::Hooks HooksOfEngine();
  void LoseManager(int num_plans);
  // Of the client that has sent the request: a stream of the new manager, see SimEngine::RestoreHook.
  absl::StatusOr<SimEngine::Restored> Restore(SimEngine* to, const RequestToRestore& found);
  absl::Status Keep(SimEngine* to, int id, std::shared_ptr<SimCaller> caller, const RestoredCopy& copy, bool ran_last);
  // The client of a request that the manager does not have starts it again.
  absl::Status StartAgain(Placed* placed);
  size_t IndexOf(const SimEngine* engine) const;
  // Clients that have heard of the new manager come back.
  absl::Status ReturnClients();
  bool IsAdopting() const;
  // Clients for which there is no worker try no longer.
  void GiveUp();
  // Chooses a worker. Without one, the result is null.
  absl::StatusOr<SimEngine*> Place(const Request& request);
  static bool IsSettled(const Placed& placed);
  // The worker never returns, if another one is left that may.
  void LoseForEver(int worker);
  // Runs all loops, as their threads would, until all requests have ended.
  absl::Status Finish();

  const Scenario& scenario_;
  const bool has_other_numerics_;  // The workers do not all have the same ones.
  ManualClock clock_;
  std::vector<std::unique_ptr<SimEngine>> engines_;
  std::set<const SimEngine*> gone_;                 // Engines of workers that are lost for ever.
  std::map<RequestId, int64_t> may_move_since_us_;  // Requests of lost workers that others could take.
  std::map<int, Placed> placed_;                    // The requests that were submitted to a step loop, by id.
  std::vector<Replaced> replaced_;                  // Since the last manager was lost.
  absl::Status status_;                             // The first contradiction in a move.
  int64_t adopts_until_us_ = 0;                     // The new manager waits for workers until then.
  std::map<int, int64_t> unwanted_;                 // When requests that nobody wants are cancelled, by id.
  SimReport lost_;                                  // What the managers have reported that are lost.
  uint64_t lost_digest_ = 0;
  int64_t num_unplaced_ = 0;    // Requests for which there was no worker.
  int64_t num_renumbered_ = 0;  // Requests that have moved to a worker with other numerics.
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_CLUSTER_SIM_H_
