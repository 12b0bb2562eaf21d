// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_RANK_GROUP_CLIENT_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_RANK_GROUP_CLIENT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kv_manager/worker_link/worker_client.h"

namespace quire {

// A worker with a whole model, or several ranks, each with a part of one, as one worker. A block id means the same
// tokens on every rank, so the loop has one block table for all pools, and sends every rank the same plans.
//
// Every call goes to all ranks, and the loop hears one answer when all have answered:
//   - a description is joint, see JoinDescriptions(), and a rank that does not fit gets the group refused;
//   - a session adopts what rank 0 has kept if all ranks have kept the same, else it fails with INTERNAL;
//   - a result is that of rank 0. A digest that differs on another rank ends the session with INTERNAL before the loop
//     sees the result, so no token of it leaves. No block of a step is used again before all ranks have executed it;
//   - a rank that drains or is lost makes the group drain or be lost. The error names the rank.
//
// The manager is where the ranks meet: it tells each of them the transport addresses of all, and a key that it draws
// for the session.
//
// The digests are StepResult::digest and WorkerInventory::digest. Ranks other than 0 need not tell more than these.
// Thread-safe against the threads of the ranks' clients, as WorkerClient demands.
class RankGroupClient : public WorkerClient {
 public:
  using MakeClient = std::function<std::unique_ptr<WorkerClient>(const std::string& address)>;

  // The worker at `address` is asked first. If it is rank 0 of a group, it tells where the other ranks are, or they are
  // at RankAddress().
  RankGroupClient(const std::string& address, MakeClient make_client);
  // `ranks` are the clients of the ranks in their order. REQUIRES: there is one.
  explicit RankGroupClient(std::vector<std::unique_ptr<WorkerClient>> ranks);
  ~RankGroupClient() override;

  void SetListener(Listener* listener) override;
  void Describe(uint64_t epoch) override;
  void Open(uint64_t epoch, bool adopts) override;
  void Refuse(const std::string& reason) override;
  void Send(const StepPlan& plan) override;
  void Probe(uint64_t epoch) override;
  void Close() override;
  RankStates ranks() const override QUIRE_EXCLUDES(mutex_);

 private:
  struct Answer {
    StepResult result;
    int64_t duration_us;
  };
  // What one rank has answered in this attempt or session.
  struct Rank {
    bool is_described = false;
    bool is_opened = false;
    bool is_probed = false;  // Since the last call of Probe().
    WorkerDescription description;
    std::unique_ptr<WorkerInventory> inventory;
    std::deque<Answer> answers;  // Of plans that another rank has not answered, oldest first.
  };
  // Listens to one rank.
  class RankListener;
  // A place at which some attempt has looked for a rank. The client stays until the end, because a thread may still use
  // it: addresses of ranks hardly ever change.
  struct KnownRank {
    size_t rank;
    std::string address;
    std::unique_ptr<RankListener> listener;
    std::unique_ptr<WorkerClient> client;  // It may call its listener until it is gone.
  };

  void OnDescribed(size_t rank, uint64_t epoch, WorkerDescription description);
  void OnOpened(size_t rank, uint64_t epoch, std::unique_ptr<WorkerInventory> inventory);
  void OnResult(size_t rank, uint64_t epoch, StepResult result, int64_t duration_us);
  void OnDraining(uint64_t epoch);
  void OnProbed(size_t rank, uint64_t epoch);
  void OnLost(size_t rank, uint64_t epoch, absl::Status reason);

  bool IsCurrent(uint64_t epoch) const QUIRE_REQUIRES(mutex_) { return !is_over_ && epoch == epoch_; }
  // Takes the client of a rank.
  WorkerClient* Keep(size_t rank, const std::string& address, std::unique_ptr<WorkerClient> client);
  // Returns the client of the rank at this address, and makes it if there is none.
  WorkerClient* ClientOf(size_t rank, const std::string& address);
  // An attempt or a session of the first `num_ranks` ranks begins.
  void Begin(uint64_t epoch, size_t num_ranks) QUIRE_REQUIRES(mutex_);
  // The ranks of the attempt or session. Waits until no thread asks other ranks.
  std::vector<WorkerClient*> Ranks() QUIRE_REQUIRES(mutex_);
  // Where the manager reaches a rank of the group in which rank 0 has this place.
  std::string AddressOf(int rank, const WorkerDescription::RankPlace& place) const;
  // Rank 0 has this place in a group: asks the others, too. Called by a thread of the client of rank 0.
  void DescribeOthers(uint64_t epoch, const WorkerDescription::RankPlace& place) QUIRE_EXCLUDES(mutex_);
  // All ranks have described themselves: tells the loop. Returns the reason if they do not fit.
  absl::Status OnAllDescribed() QUIRE_REQUIRES(mutex_);
  // Whether the ranks have kept the same. The error names the first rank that has kept something else.
  absl::Status CompareInventories() const QUIRE_REQUIRES(mutex_);
  // Takes the oldest answers of all ranks, of which none is missing. INTERNAL names a rank that differs from rank 0.
  absl::StatusOr<Answer> TakeAnswers() QUIRE_REQUIRES(mutex_);
  // Tells the loop, which then closes all ranks.
  void Lose(absl::Status reason) QUIRE_REQUIRES(mutex_);
  // Says what `rank` lacks in the attempt or session that is given up, or nothing.
  std::string WhatIsMissing(const Rank& rank) const QUIRE_REQUIRES(mutex_);
  // Shows operators that no rank is in a session any more, and forgets why an earlier one has ended.
  void ClearStates() QUIRE_REQUIRES(mutex_);
  // Makes the states visible. A worker with a whole model has none.
  void ShowStates() QUIRE_REQUIRES(mutex_);

  const std::string address_;
  const MakeClient make_client_;  // Null if all ranks are known from the beginning.
  Listener* listener_ = nullptr;
  // The loop is told while the mutex is held, so that it hears of results in their order. No rank is called then, since
  // a rank may answer within the call.
  mutable Mutex mutex_;
  uint64_t epoch_ QUIRE_GUARDED_BY(mutex_) = 0;
  bool is_over_ QUIRE_GUARDED_BY(mutex_) = true;  // The attempt or session of `epoch_` is lost or closed.
  bool is_draining_ QUIRE_GUARDED_BY(mutex_) = false;
  std::vector<Rank> told_ QUIRE_GUARDED_BY(mutex_);         // By rank, of the ranks of the attempt or session.
  std::vector<RankState> states_ QUIRE_GUARDED_BY(mutex_);  // By rank.
  RankStates shown_states_ QUIRE_GUARDED_BY(mutex_);
  bool is_opening_ QUIRE_GUARDED_BY(mutex_) = false;  // The session is being opened, or is open.
  bool is_probing_ QUIRE_GUARDED_BY(mutex_) = false;  // Some rank has not answered the last probe.
  SessionGroup group_ QUIRE_GUARDED_BY(mutex_);       // Without a key. No addresses: the worker has a whole model.
  bool is_asking_ QUIRE_GUARDED_BY(mutex_) = false;   // A thread is in DescribeOthers(), and changes the vectors below.
  CondVar has_asked_;
  absl::Status refusal_ QUIRE_GUARDED_BY(mutex_);  // Why the thread that asks must refuse the ranks afterwards.
  // By rank. Those of an earlier group may stay behind those of this one.
  std::vector<WorkerClient*> ranks_;
  std::vector<KnownRank> known_;  // Last, because clients call this object until they are gone.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_RANK_GROUP_CLIENT_H_
