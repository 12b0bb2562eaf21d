// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_MOVED_REQUEST_H_
#define QUIRE_SCHEDULER_MOVED_REQUEST_H_

#include <memory>
#include <utility>

#include "base/ids.h"
#include "scheduler/sequence_group.h"

namespace quire {

// A request on its way from one scheduler to another. It has the whole state of the request: the tokens of all its
// sequences, the state of its beam search, what its caller was told, and which losses count against it. It has no rows
// and no blocks, so the schedulers may have different pools and block sizes. The request continues with the tokens that
// it would have got without the move.
class MovedRequest {
 public:
  MovedRequest(MovedRequest&&) = default;
  MovedRequest& operator=(MovedRequest&&) = default;

  // A request that no scheduler has seen.
  explicit MovedRequest(Request request)
      : group_(std::make_unique<SequenceGroup>(std::move(request), ServiceRank(), SequenceId{0})) {}

  RequestId id() const { return group_->id(); }
  const Request& request() const { return group_->request(); }
  const SequenceGroup& group() const { return *group_; }
  // The request continues on workers of this generation, which is another one than before.
  void SetGeneration(GenerationId generation) { group_->SetGeneration(generation); }

 private:
  friend class Scheduler;
  explicit MovedRequest(std::unique_ptr<SequenceGroup> group) : group_(std::move(group)) {}

  std::unique_ptr<SequenceGroup> group_;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_MOVED_REQUEST_H_
