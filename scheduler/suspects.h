// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_SUSPECTS_H_
#define QUIRE_SCHEDULER_SUSPECTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/ids.h"
#include "scheduler/plans_in_flight.h"
#include "scheduler/sequence_group.h"

namespace quire {

// A request that must fail, because its workers are lost repeatedly.
struct Convict {
  RequestId request;
  int num_losses;  // Number of losses of its worker since the request was last cleared.
  // This is the sample at which the worker was lost last, when the request has several samples and the sample is known.
  std::optional<int> sample_index = std::nullopt;

  bool operator==(const Convict&) const = default;
};

// Knows which groups of a scheduler are suspects (see Suspicion), whether they wait or run. The groups are borrowed.
// Owned by the step-loop thread.
class Suspects {
 public:
  // The group enters or leaves the scheduler.
  void Add(SequenceGroup* group);
  void Remove(const SequenceGroup& group);

  // A plan was committed. Clears the groups that have turned out to be innocent.
  void OnCommitted();

  // The worker is lost. Counts the loss against the groups that had slices in `plans`, or against the group of the
  // sequence `named` alone if it had one. Returns the groups that are convicted. `find` returns the group of a request,
  // or null when it has left the scheduler. REQUIRES: when a suspect had slices in `plans`, no other group had.
  std::vector<Convict> OnLost(const PlansInFlight& plans, std::optional<SequenceId> named,
                              absl::FunctionRef<SequenceGroup*(RequestId)> find);

  bool empty() const { return num_suspects_ == 0; }
  int size() const { return num_suspects_; }
  // The suspect that was submitted last, which runs first. REQUIRES: not empty().
  SequenceGroup* newest() const;

 private:
  std::map<uint64_t, SequenceGroup*> accused_;  // The groups with losses, by submission.
  int num_suspects_ = 0;                        // Number of suspects.
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SUSPECTS_H_
