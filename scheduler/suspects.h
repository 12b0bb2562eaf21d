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

// A request that must fail, because its workers are lost again and again.
struct Convict {
  RequestId request;
  int num_losses;  // How often the worker of the request was lost since the request last got further than before.

  bool operator==(const Convict&) const = default;
};

// Knows which groups of a scheduler are suspects (see Suspicion), whether they wait or run. The groups are borrowed.
// Owned by the step-loop thread.
class Suspects {
 public:
  // The group enters or leaves the scheduler.
  void Add(SequenceGroup* group);
  void Remove(const SequenceGroup& group) { by_submission_.erase(group.rank().submission); }

  // The worker has answered a slice of the group that ends at `position`.
  void OnAnswered(SequenceGroup* group, int position) {
    if (group->suspicion().OnAnswered(position)) Remove(*group);
  }

  // The worker is lost. Counts the loss against the groups that had slices in `plans`, or against the group of the
  // sequence `named` alone if it had one. Returns the groups that are convicted. `find` returns the group of a request,
  // or null when it has left the scheduler.
  std::vector<Convict> OnLost(const PlansInFlight& plans, std::optional<SequenceId> named,
                              absl::FunctionRef<SequenceGroup*(RequestId)> find);

  bool empty() const { return by_submission_.empty(); }
  int size() const { return static_cast<int>(by_submission_.size()); }
  // The suspect that was submitted last, which runs first. REQUIRES: not empty().
  SequenceGroup* newest() const { return by_submission_.rbegin()->second; }

 private:
  std::map<uint64_t, SequenceGroup*> by_submission_;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SUSPECTS_H_
