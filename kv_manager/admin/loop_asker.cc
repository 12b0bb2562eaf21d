// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/loop_asker.h"

#include <utility>

#include "base/status_reason.h"

namespace quire {

void LoopAsker::Ask(const std::string& worker, LoopQuestion question, std::function<void(const absl::Status&)> done) {
  auto later = [this, done = std::move(done)](const absl::Status& status) {
    Schedule([done, status = WithWorkerReason(status)] { done(status); });
  };
  worker.empty() ? engine_->AskAll(std::move(question), std::move(later))
                 : engine_->AskWorker(worker, std::move(question), std::move(later));
}

absl::Status WithWorkerReason(const absl::Status& status) {
  return absl::IsNotFound(status) ? WithReason(status, "NO_SUCH_WORKER") : status;
}

}  // namespace quire
