// SPDX-License-Identifier: Apache-2.0

#include "client/views/worker_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr int kMinAddressWidth = 28;

const char* StateName(v1::WorkerState state) {
  if (state == v1::WORKER_STATE_REFUSED) return "refused";
  return state == v1::WORKER_STATE_READY ? "ready" : "connecting";
}

}  // namespace

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
