// SPDX-License-Identifier: Apache-2.0

#include "client/views/state_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace quire {
namespace {

constexpr int kMinAddressWidth = 28;

const char* StateName(v1::WorkerState state) {
  if (state == v1::WORKER_STATE_REFUSED) return "refused";
  return state == v1::WORKER_STATE_READY ? "ready" : "connecting";
}

}  // namespace

const char* StateOf(v1::RequestState state) {
  switch (state) {
    case v1::REQUEST_STATE_RUNNING:
      return "running";
    case v1::REQUEST_STATE_SWAPPED:
      return "swapped";
    case v1::REQUEST_STATE_WAITING:
      return "waiting";
    default:
      return "unknown";
  }
}

std::string DescribeAge(uint64_t age_ms) {
  const absl::Duration age = absl::Milliseconds(age_ms);
  const absl::Duration unit = age < absl::Seconds(10) ? absl::Milliseconds(100) : absl::Seconds(1);
  return absl::FormatDuration(absl::Floor(age, unit));
}

const char* StateOf(const v1::WorkerStatus& worker) {
  const bool is_ready = worker.state() == v1::WORKER_STATE_READY;
  return is_ready && worker.is_draining() ? "draining" : StateName(worker.state());
}

std::string RankLines(const v1::WorkerStatus& worker) {
  std::string lines;
  for (const v1::RankStatus& rank : worker.ranks()) {
    const std::string& more = rank.state() == v1::WORKER_STATE_READY ? rank.device() : rank.last_error();
    absl::StrAppend(&lines, "  rank ", rank.rank(), " at ", rank.address(), " is ", StateName(rank.state()),
                    more.empty() ? "" : ": ", more, "\n");
  }
  return lines;
}

int AddressWidth(const v1::GetStatusResponse& status) {
  int width = kMinAddressWidth;
  for (const v1::WorkerStatus& worker : status.workers()) {
    width = std::max(width, static_cast<int>(worker.address().size()));
  }
  return width;
}

}  // namespace quire
