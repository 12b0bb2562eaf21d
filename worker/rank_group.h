// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_RANK_GROUP_H_
#define QUIRE_WORKER_RANK_GROUP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kernels/collective.h"
#include "quire/v1/worker.pb.h"
#include "worker/timed_collective.h"

namespace quire {

// The place of this process among the ranks of a group.
struct RankPlace {
  std::string group_id;
  int rank = 0;
  int size = 1;
  std::vector<std::string> addresses = {};  // [size], see RankPlace.addresses in worker.proto. Empty: one host.
};

// Opens what one session of a group moves its bytes through. Returns null and the reason if it cannot.
using CollectiveOpener = std::function<std::unique_ptr<SessionCollective>(std::string* why_not)>;

// What one rank knows of its group: the collective of the session, and the one of the next session, whose address the
// manager must know before it opens that session.
//
// The ranks agree before they begin a plan, so that all of them execute a step or none does: each tells the others
// which plan it has, or that its session has ended. A rank whose session ends late hears that in place of a plan. So
// all ranks keep the rows and blocks after the same step, and the next manager can adopt them.
//
// A rank that is lost says nothing. The collective notices that, or the manager, which ends the sessions of the others.
// These wait `patience` for what they still need, and then give the group up.
class RankGroup {
 public:
  RankGroup(const RankPlace& place, CollectiveOpener open, std::chrono::milliseconds patience);
  ~RankGroup();

  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  const RankPlace& place() const { return place_; }

  // These are thread-safe.

  // Returns RankPlace.transport_address for the next session, or the reason why there is none.
  absl::StatusOr<std::string> TransportAddress() const QUIRE_EXCLUDES(mutex_);
  // Returns INVALID_ARGUMENT if this is no group of as many ranks, and FAILED_PRECONDITION if it names an address of
  // this rank that is not that of the next session.
  absl::Status Check(const v1::SessionGroup& group) const QUIRE_EXCLUDES(mutex_);
  // The collective of the next session becomes that of the session. REQUIRES: Check was OK, and Leave was called.
  void Take(const v1::SessionGroup& group) QUIRE_EXCLUDES(mutex_);
  // The session has ended, so the others may be gone: what waits for them gives up after the patience. Does nothing
  // without a session.
  void EndSoon() QUIRE_EXCLUDES(mutex_);

  // These belong to the thread that computes.

  // Opens the collective of the next session, unless it is open already.
  void PrepareNext() QUIRE_EXCLUDES(mutex_);
  // Waits until all ranks have joined the session.
  absl::Status Join() QUIRE_EXCLUDES(mutex_);
  // The collective in which a step moves its bytes, or null without a session.
  Collective* collective() QUIRE_EXCLUDES(mutex_);
  // Return how long this rank was in exchanges since the last call: in those of steps, and in those in which the ranks
  // agree on a plan, which last until all of them have got it.
  ExchangeTimes TakeStepTimes() { return for_steps_.Take(); }
  ExchangeTimes TakePlanTimes() { return for_plans_.Take(); }
  // Waits until all ranks have told what they are about to do. OK: all have this plan, and begin it. After an error no
  // rank begins it, and the session is over: UNAVAILABLE if another rank has ended its session or is lost, and
  // INVALID_ARGUMENT if it has another plan.
  absl::Status Agree(uint64_t epoch, const v1::StepPlan& plan);
  // Tells the others that the session has ended here. If a step has failed, the others may be in the middle of theirs,
  // and are told nothing.
  void TellEnd(bool has_failed) QUIRE_EXCLUDES(mutex_);
  // Leaves the session. Nothing may use its collective any more. REQUIRES: TellEnd was called.
  void Leave() QUIRE_EXCLUDES(mutex_);

 private:
  // What a rank is about to do.
  struct Intent {
    uint64_t epoch = 0;
    uint64_t step = 0;  // 0: its session has ended.
    uint64_t plan = 0;  // A hash.
  };

  // Waits until all ranks have told, and compares.
  absl::Status Exchange(const Intent& own);
  absl::Status Lost(const BackendStatus& reason) const;
  // Ends the collective when the patience is over.
  void Watch() QUIRE_EXCLUDES(mutex_);

  const RankPlace place_;
  const CollectiveOpener open_;
  const std::chrono::milliseconds patience_;

  mutable Mutex mutex_;
  CondVar changed_;
  // Only the thread that computes changes it, but for Take.
  std::unique_ptr<SessionCollective> current_ QUIRE_GUARDED_BY(mutex_);
  v1::SessionGroup group_ QUIRE_GUARDED_BY(mutex_);  // Of the session.
  std::unique_ptr<SessionCollective> next_ QUIRE_GUARDED_BY(mutex_);
  std::string why_not_ QUIRE_GUARDED_BY(mutex_) = "it is being opened";  // There is no next_.
  std::optional<std::chrono::steady_clock::time_point> end_ QUIRE_GUARDED_BY(mutex_);
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;

  // These pass calls on to current_. Used by the thread that computes.
  TimedCollective for_steps_;
  TimedCollective for_plans_;
  bool is_over_ = true;  // The ranks do not agree any more. Used by the thread that computes.
  std::thread watch_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_RANK_GROUP_H_
