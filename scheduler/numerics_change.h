// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_NUMERICS_CHANGE_H_
#define QUIRE_SCHEDULER_NUMERICS_CHANGE_H_

namespace quire {

// Says where the numerics of a sequence have changed: its request has gone on with workers of other generations. The
// positions count from the start of the prompt.
struct NumericsChange {
  int first = 0;  // The tokens before this position have the numerics with which the request began.
  // The tokens from this position on have those of the worker that the sequence has now. It is behind the first token
  // after the prompt if any sample of the request had drawn one: then the request cannot begin again on this worker.
  int last = 0;

  bool operator==(const NumericsChange&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_NUMERICS_CHANGE_H_
