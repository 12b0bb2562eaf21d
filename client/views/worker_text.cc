// SPDX-License-Identifier: Apache-2.0

#include "client/views/worker_text.h"

#include <algorithm>

namespace quire {
namespace {

constexpr int kMinAddressWidth = 28;

}  // namespace

const char* StateOf(const v1::WorkerStatus& worker) {
  if (worker.state() == v1::WORKER_STATE_REFUSED) return "refused";
  if (worker.state() != v1::WORKER_STATE_READY) return "connecting";
  return worker.is_draining() ? "draining" : "ready";
}

int AddressWidth(const v1::GetStatusResponse& status) {
  int width = kMinAddressWidth;
  for (const v1::WorkerStatus& worker : status.workers()) {
    width = std::max(width, static_cast<int>(worker.address().size()));
  }
  return width;
}

}  // namespace quire
