// SPDX-License-Identifier: Apache-2.0

#include "scheduler/recorded_rows.h"

#include <algorithm>
#include <utility>

namespace quire {

void RecordedRows::OnTaken(RowId row, std::optional<RequestId> request) {
  const std::optional<RequestId> owner = requests_[Value(row)];
  if (owner == request) return;
  if (owner.has_value()) {
    const auto it = rows_.find(*owner);
    std::erase(it->second.rows, row);
    if (it->second.has_finished) {
      End(*owner);
    } else if (it->second.rows.empty()) {
      rows_.erase(it);
    }
  }
  requests_[Value(row)] = request;
  if (request.has_value()) rows_[*request].rows.push_back(row);
}

void RecordedRows::OnFinished(RequestId request) {
  if (const auto it = rows_.find(request); it != rows_.end()) it->second.has_finished = true;
}

void RecordedRows::End(RequestId request) {
  const auto it = rows_.find(request);
  if (it == rows_.end()) return;
  for (const RowId row : it->second.rows) {
    requests_[Value(row)].reset();
    ended_.push_back(row);
  }
  rows_.erase(it);
}

std::vector<RowId> RecordedRows::TakeEnded() {
  std::vector<RowId> ended = std::exchange(ended_, {});
  std::sort(ended.begin(), ended.end());
  ended.erase(std::unique(ended.begin(), ended.end()), ended.end());
  return ended;
}

void RecordedRows::Clear() {
  std::fill(requests_.begin(), requests_.end(), std::nullopt);
  rows_.clear();
  ended_.clear();
}

}  // namespace quire
