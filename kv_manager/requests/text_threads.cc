// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/text_threads.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "base/thread_priority.h"

namespace quire {

TextThreads::TextThreads(int num_threads, size_t max_waiting_texts, RpcCounts* counts)
    : max_waiting_texts_(max_waiting_texts),
      counts_(counts),
      output_(num_threads),
      input_(num_threads),
      very_long_(num_threads) {}

absl::Status TextThreads::RunInput(const std::string& tenant, size_t num_bytes, std::function<void()> job) {
  if (num_bytes <= kShortTextBytes) {
    job();
    return absl::OkStatus();
  }
  if (num_bytes >= kVeryLongTextBytes) {
    if (very_long_jobs_.TryAdd(tenant, std::move(job), max_waiting_texts_)) {
      very_long_.Schedule([this] {
        LowerPriorityOfThread();
        very_long_jobs_.Take()();
      });
      return absl::OkStatus();
    }
  } else if (input_jobs_.TryAdd(tenant, std::move(job), max_waiting_texts_)) {
    input_.Schedule([this] { input_jobs_.Take()(); });
    return absl::OkStatus();
  }
  counts_->Count(RpcRefusal::kTooManyLongTexts);
  return WithRetryDelay(WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                       max_waiting_texts_,
                                       " long texts wait to be tokenized, or guides to be compiled, and the limit is ",
                                       max_waiting_texts_, " (--max-waiting-texts)")),
                                   "TOO_MANY_LONG_TEXTS", {{"max_waiting_texts", absl::StrCat(max_waiting_texts_)}}),
                        /*delay_ms=*/500);
}

}  // namespace quire
