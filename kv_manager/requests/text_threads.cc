// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/text_threads.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "base/thread_priority.h"

namespace quire {

TextThreads::TextThreads(int num_threads, size_t max_waiting_texts, size_t max_bytes, RpcCounts* counts)
    : max_waiting_texts_(max_waiting_texts),
      max_bytes_(max_bytes),
      counts_(counts),
      output_(num_threads),
      input_(num_threads, Lane::kUnlimited, /*has_low_priority=*/false),
      very_long_(num_threads, kMaxRunningBytes, /*has_low_priority=*/true),
      short_(num_threads, Lane::kUnlimited, /*has_low_priority=*/false) {}

absl::Status TextThreads::RunInput(const std::string& tenant, size_t num_bytes, std::function<void()> job) {
  if (num_bytes <= kTinyTextBytes) {
    job();
    return absl::OkStatus();
  }
  const size_t held = std::min(num_bytes, max_bytes_);
  absl::Status status = Hold(tenant, held);
  if (status.ok()) {
    const bool is_short = num_bytes <= kShortTextBytes;
    Lane& lane = is_short ? short_ : num_bytes < kVeryLongTextBytes ? input_ : very_long_;
    const auto run = [this, tenant, held, job = std::move(job)]() mutable {
      job();
      job = nullptr;
      LetGo(tenant, held);
    };
    if (lane.TryRun(tenant, {run, num_bytes}, is_short ? Lane::kUnlimited : max_waiting_texts_)) return status;
    LetGo(tenant, held);
    status = WithReason(
        absl::ResourceExhaustedError(absl::StrCat(
            max_waiting_texts_, " long texts wait to be tokenized, or guides to be compiled, and the limit is ",
            max_waiting_texts_, " (--max-waiting-texts)")),
        "TOO_MANY_LONG_TEXTS", {{"max_waiting_texts", absl::StrCat(max_waiting_texts_)}});
  }
  counts_->Count(RpcRefusal::kTooManyLongTexts);
  return WithRetryDelay(status, /*delay_ms=*/500);
}

absl::Status TextThreads::RunParse(const std::string& tenant, size_t num_bytes, std::function<void()> job) {
  if (num_bytes >= kVeryLongTextBytes) return RunInput(tenant, num_bytes, std::move(job));
  if (num_bytes > kShortMessageBytes) {
    RunMessage(tenant, std::move(job));
  } else {
    job();
  }
  return absl::OkStatus();
}

absl::Status TextThreads::Hold(const std::string& tenant, size_t num_bytes) {
  const MutexLock lock(&mutex_);
  const auto own = held_.find(tenant);
  const size_t of_tenant = own == held_.end() ? 0 : own->second;
  const bool is_beyond_share = of_tenant > 0 && of_tenant + num_bytes > max_bytes_ / 2;
  if (!is_beyond_share && sum_ + num_bytes <= max_bytes_) {
    held_[tenant] += num_bytes;
    sum_ += num_bytes;
    return absl::OkStatus();
  }
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the long texts ", is_beyond_share ? "of this tenant " : "", "that wait or are worked on count as ",
          is_beyond_share ? of_tenant : sum_, " bytes (a guide to be compiled as ", kVeryLongTextBytes,
          "), this one as ", num_bytes, ", and the limit is ", is_beyond_share ? max_bytes_ / 2 : max_bytes_,
          is_beyond_share ? " for a tenant (half of --max-text-bytes)" : " (--max-text-bytes)")),
      "TOO_MANY_LONG_TEXTS", {{"max_text_bytes", absl::StrCat(max_bytes_)}});
}

void TextThreads::LetGo(const std::string& tenant, size_t num_bytes) {
  const MutexLock lock(&mutex_);
  sum_ -= num_bytes;
  const auto own = held_.find(tenant);
  if ((own->second -= num_bytes) == 0) held_.erase(own);
}

void TextThreads::RunMessage(const std::string& tenant, std::function<void()> job) {
  short_.TryRun(tenant, {std::move(job), /*num_bytes=*/0}, Lane::kUnlimited);
}

bool TextThreads::Lane::TryRun(const std::string& tenant, Job job, size_t max_waiting) {
  {
    const MutexLock lock(&mutex_);
    if (!jobs_.TryPush(tenant, std::move(job), max_waiting)) return false;
  }
  threads_.Schedule([this] {
    if (has_low_priority_) LowerPriorityOfThread();
    RunAll();
  });
  return true;
}

// A job that does not run yet is found by the thread whose job is in its way.
void TextThreads::Lane::RunAll() {
  Job job;
  while (true) {
    {
      const MutexLock lock(&mutex_);
      running_bytes_ -= job.num_bytes;
      if (jobs_.empty()) return;
      if (running_bytes_ > 0 && running_bytes_ + jobs_.front().num_bytes > max_running_bytes_) return;
      job = jobs_.Pop();
      running_bytes_ += job.num_bytes;
    }
    job.run();
    job.run = nullptr;
  }
}

}  // namespace quire
