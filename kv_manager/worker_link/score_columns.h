// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_SCORE_COLUMNS_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_SCORE_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "quire/v1/worker.pb.h"
#include "scheduler/step_plan.h"

namespace quire {

// Reads the entries of ScoreColumns that a worker has sent, one after the other. The errors are INTERNAL and name the
// column, the value and the limit.
class ScoreReader {
 public:
  // `name` is the name of the field. Borrows `in` and `name`.
  ScoreReader(const v1::ScoreColumns& in, absl::string_view name, int vocab_size)
      : in_(in), name_(name), vocab_size_(vocab_size) {}

  absl::Status CheckColumns(int num_entries) const;

  // Fills all of `out` but the token. `num_logprobs` is what the row asks for. REQUIRES: CheckColumns() passed.
  absl::Status Next(int num_logprobs, ScoredToken* out);

 private:
  absl::Status Bad(absl::string_view column, uint64_t value, absl::string_view limit) const;

  const v1::ScoreColumns& in_;
  const absl::string_view name_;
  const int vocab_size_;
  int entry_ = 0;
  int next_top_ = 0;
};

// Appends the scores to the columns.
void EncodeScores(const std::vector<ScoredToken>& scores, v1::ScoreColumns* out);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_SCORE_COLUMNS_H_
