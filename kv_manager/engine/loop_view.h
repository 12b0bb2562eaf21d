// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_LOOP_VIEW_H_
#define QUIRE_KV_MANAGER_ENGINE_LOOP_VIEW_H_

#include <cstdint>
#include <functional>
#include <string>

#include "scheduler/request.h"

namespace quire {

class PagedBlockManager;
class Scheduler;
class TableAuditor;
class WorkerLink;

// The state of a step loop, as a question sees it. Valid only during the call of the question, on the thread of the
// loop.
struct LoopView {
  const std::string& address;  // The address of the worker.
  const WorkerLink& link;
  Scheduler* scheduler;       // Null before the worker has joined for the first time, and once the loop has stopped.
  PagedBlockManager* blocks;  // Null when `scheduler` is null. No block is used while the worker is lost.
  TableAuditor* tables;
  GenerationId generation;  // Generation of the worker's last session; 0 before the first.
  int64_t now_us;           // The start of the current round, in the time of the loop's clock.
};
using LoopQuestion = std::function<void(const LoopView&)>;

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_LOOP_VIEW_H_
