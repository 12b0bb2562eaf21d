// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_INVENTORY_H_
#define QUIRE_WORKER_INVENTORY_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/worker_protocol.h"
#include "quire/v1/worker.pb.h"
#include "worker/executor.h"

namespace quire {

// The results of the last steps, which the executor does not keep. Used by one thread.
class LastSteps {
 public:
  // A step has begun. `rows` are the executor's.
  void Begin(const v1::StepPlan& plan, absl::Span<const SequenceRow> rows);
  // The oldest step that has begun is finished. The results of another session are forgotten.
  void Finish(uint64_t epoch, const v1::StepResult& result);

  // The session that has executed the steps. 0: there are none.
  uint64_t epoch() const { return epoch_; }
  uint64_t last_step() const { return results_.empty() ? 0 : results_.back().result().step(); }
  // The results of the last kMaxPlansInFlight steps, oldest first.
  const std::deque<v1::InventoryResult>& results() const { return results_; }

 private:
  uint64_t epoch_ = 0;
  std::deque<v1::InventoryResult> begun_;  // Steps without results, the oldest first.
  std::deque<v1::InventoryResult> results_;
  v1::InventoryResult spare_;  // A message whose memory is used again.
};

// The limits of an inventory, which tests make smaller.
struct InventoryLimits {
  int64_t max_bytes = kMaxInventoryBytes;
  int64_t max_row_bytes = kMaxInventoryRowBytes;
  int64_t chunk_bytes = kInventoryChunkBytes;
};

// Returns whether there is anything to adopt: a row with a sequence, or a label.
bool HasInventory(const Executor& executor);

// Returns the chunks of the inventory. Rows and labels beyond the limits are left out. A label is also left out when
// nothing in the pool or the host tier has the content before it. Takes some 20 ms for 65536 blocks. REQUIRES: no plan
// is begun and not finished, and none has failed; the executor keeps labels. `session_end_us` is the time of the steady
// clock at which the session before ended.
std::vector<v1::InventoryChunk> MakeInventory(const Executor& executor, const LastSteps& last_steps,
                                              const std::string& layout_id, const InventoryLimits& limits = {},
                                              int64_t session_end_us = SteadyClock().NowMicros());

}  // namespace quire

#endif  // QUIRE_WORKER_INVENTORY_H_
