// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_STEP_SESSION_H_
#define QUIRE_WORKER_STEP_SESSION_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "quire/v1/worker.pb.h"

namespace quire {

// The connection to one manager as the session loop sees it: a place to send answers to. StepStream implements it on
// gRPC. The loop calls it from several threads and holds its own mutex meanwhile, so an implementation must be
// thread-safe, must not block, and must not call the loop.
class StepSession {
 public:
  virtual ~StepSession() = default;

  // Each sends one answer. After the session has ended they do nothing. An inventory follows the answer that the
  // session is open. It is empty if there is nothing to adopt.
  virtual void SendOpened(uint64_t epoch, std::vector<v1::InventoryChunk> inventory) = 0;
  virtual void SendResult(v1::StepResult result) = 0;
  virtual void SendDraining() = 0;
  // Ends the session with `status` after every answer that was sent before. Only the first call counts.
  virtual void End(const absl::Status& status) = 0;
};

}  // namespace quire

#endif  // QUIRE_WORKER_STEP_SESSION_H_
