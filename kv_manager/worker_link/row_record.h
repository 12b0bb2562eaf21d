// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_ROW_RECORD_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_ROW_RECORD_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "scheduler/step_plan.h"

namespace quire {

// The content of SequenceStart.record of worker.proto: the record of the request, and then what is known only when
// the request starts. The worker gives it back with the row.
struct RowRecord {
  absl::string_view request;  // Request::record. Borrowed.
  int num_cached_tokens = 0;  // See SequenceStart.
  absl::string_view search;   // See SequenceStart. Borrowed.
  int num_moves = 0;          // See SequenceStart. 0 if an earlier version has made the record.
  std::optional<NumericsChange> numerics_change = std::nullopt;  // See SequenceStart.
};

// The result is empty when the request has no record, or when the record is longer than a row may have. A search that
// does not fit is left out.
std::string RowRecordOf(const SequenceStart& start);
// The result is empty when the record with the search is longer than a row may have.
std::string RowRecordOf(const RecordChange& change);
// Returns nothing for bytes that RowRecordOf has not made. REQUIRES: `bytes` outlive the result.
std::optional<RowRecord> ReadRowRecord(absl::string_view bytes);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_ROW_RECORD_H_
