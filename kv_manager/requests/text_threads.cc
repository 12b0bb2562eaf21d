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
      input_(num_threads, /*has_low_priority=*/false),
      very_long_(num_threads, /*has_low_priority=*/true) {}

absl::Status TextThreads::RunInput(const std::string& tenant, size_t num_bytes, std::function<void()> job) {
  if (num_bytes <= kShortTextBytes) {
    job();
    return absl::OkStatus();
  }
  Lane& lane = num_bytes >= kVeryLongTextBytes ? very_long_ : input_;
  if (lane.TryRun(tenant, std::move(job), max_waiting_texts_)) return absl::OkStatus();
  counts_->Count(RpcRefusal::kTooManyLongTexts);
  return WithRetryDelay(WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                       max_waiting_texts_,
                                       " long texts wait to be tokenized, or guides to be compiled, and the limit is ",
                                       max_waiting_texts_, " (--max-waiting-texts)")),
                                   "TOO_MANY_LONG_TEXTS", {{"max_waiting_texts", absl::StrCat(max_waiting_texts_)}}),
                        /*delay_ms=*/500);
}

bool TextThreads::Lane::TryRun(const std::string& tenant, std::function<void()> job, size_t max_waiting) {
  {
    const MutexLock lock(&mutex_);
    if (!jobs_.TryPush(tenant, std::move(job), max_waiting)) return false;
  }
  threads_.Schedule([this] {
    if (has_low_priority_) LowerPriorityOfThread();
    RunNext();
  });
  return true;
}

void TextThreads::Lane::RunNext() {
  std::function<void()> job;
  {
    const MutexLock lock(&mutex_);
    job = jobs_.Pop();
  }
  job();
}

}  // namespace quire
