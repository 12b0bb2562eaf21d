// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_NUMERICS_CHANGE_H_
#define QUIRE_SCHEDULER_NUMERICS_CHANGE_H_

namespace quire {

// The positions at which the numerics of a sequence changed, because its request moved to workers of other generations.
// The positions count from the start of the prompt.
struct NumericsChange {
  int first = 0;  // The tokens before this position have the numerics with which the request began.
  // The tokens from this position on have the numerics of the sequence's present worker. It is greater than the prompt
  // length if any sample of the request had drawn a token: then the request cannot restart on this worker.
  int last = 0;

  bool operator==(const NumericsChange&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_NUMERICS_CHANGE_H_
