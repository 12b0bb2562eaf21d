// SPDX-License-Identifier: Apache-2.0

#include "client/load/progress_line.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace quire {
namespace {

constexpr int kBarColumns = 24;

// The share of requests or of time that is done, whichever is larger.
double ShareDone(const LoadTestProgress& now, const LoadGoal& goal) {
  double share = 0;
  if (goal.num_requests > 0) share = static_cast<double>(now.num_ended) / static_cast<double>(goal.num_requests);
  if (goal.duration_s > 0) share = std::max(share, now.elapsed_s / goal.duration_s);
  return std::min(share, 1.0);
}

}  // namespace

std::string DescribeProgress(const LoadTestProgress& before, const LoadTestProgress& now, const LoadGoal& goal) {
  const std::string whole = goal.num_requests > 0 ? absl::StrCat(" of ", goal.num_requests) : "";
  const std::string failed = now.num_failed > 0 ? absl::StrCat(", ", now.num_failed, " failed") : "";
  const double seconds = now.elapsed_s - before.elapsed_s;
  const double rate = seconds > 0 ? static_cast<double>(now.output_tokens - before.output_tokens) / seconds : 0;
  return absl::StrFormat("%d%s requests, %d in flight%s, %.0f tokens/s, %.0f s", now.num_ended, whole,
                         now.num_in_flight, failed, rate, now.elapsed_s);
}

std::string DrawProgress(const LoadTestProgress& before, const LoadTestProgress& now, const LoadGoal& goal,
                         int columns) {
  const double share = ShareDone(now, goal);
  const int filled = static_cast<int>(share * kBarColumns);
  const std::string line =
      absl::StrFormat("[%s%s] %3.0f %% %s", std::string(filled, '#'), std::string(kBarColumns - filled, '-'),
                      100 * share, DescribeProgress(before, now, goal));
  return line.substr(0, std::max(columns, 0));
}

}  // namespace quire
