// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_RECORDED_ROWS_H_
#define QUIRE_SCHEDULER_RECORDED_ROWS_H_

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"

namespace quire {

// The rows of the worker in which another manager could find requests with a record. The worker keeps a row until
// another sequence takes it, or until a plan ends it. The rows of a request that has finished or was preempted stay,
// because the next manager may need them for the client. When one of the rows of a finished request is taken, the
// others must end: otherwise the next manager would compute it again from the prompt, although hardly a client still
// waits for it. The rows of a request that was cancelled, or has moved to another worker, must also end: otherwise the
// next manager would take the request for a running one. Owned by the step-loop thread.
class RecordedRows {
 public:
  explicit RecordedRows(int num_rows) : requests_(num_rows) {}

  // The worker gives the row to a sequence of this request, or to one of a request without a record.
  void OnTaken(RowId row, std::optional<RequestId> request);
  std::optional<RequestId> RequestOf(RowId row) const { return requests_[Value(row)]; }

  // The request has all its tokens.
  void OnFinished(RequestId request);
  // No other manager may find the request.
  void End(RequestId request);
  void EndRow(RowId row) { ended_.push_back(row); }
  // Returns the rows that the next plan must end, in rising order.
  std::vector<RowId> TakeEnded();

  // All rows are empty.
  void Clear();

 private:
  struct RowsOfRequest {
    std::vector<RowId> rows;
    bool has_finished = false;
  };

  std::vector<std::optional<RequestId>> requests_;  // The index is the row.
  absl::flat_hash_map<RequestId, RowsOfRequest> rows_;
  std::vector<RowId> ended_;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_RECORDED_ROWS_H_
