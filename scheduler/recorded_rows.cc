#include "scheduler/recorded_rows.h"

#include <algorithm>
#include <utility>

namespace quire {

void RecordedRows::OnTaken(RowId row, std::optional<RequestId> request) {
  std::optional<RequestId>& owner = requests_[Value(row)];
  if (owner == request) return;
  if (owner.has_value()) {
    const auto it = rows_.find(*owner);
    std::erase(it->second, row);
    if (it->second.empty()) rows_.erase(it);
  }
  owner = request;
  if (request.has_value()) rows_[*request].push_back(row);
}

void RecordedRows::End(RequestId request) {
  const auto it = rows_.find(request);
  if (it == rows_.end()) return;
  for (const RowId row : it->second) {
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
