// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_LABEL_KEEPER_H_
#define QUIRE_WORKER_LABEL_KEEPER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "quire/v1/worker.pb.h"
#include "worker/block_labels.h"
#include "worker/sequence_row.h"
#include "worker/step_batch.h"
#include "worker/worker_limits.h"

namespace quire {

// Keeps the labels of blocks while steps run. A step that has begun may store tokens that an earlier step is still
// drawing. So it is remembered when it begins, and changes the labels when it is finished. While no step is begun, the
// labels say what the blocks contain. Owned by the executor thread.
class LabelKeeper {
 public:
  explicit LabelKeeper(const WorkerLimits& limits)
      : num_blocks_(limits.num_blocks), block_size_(limits.block_size), labels_(limits) {}

  // The plan begins, with these slices. Call it before the rows get the tokens that this step draws. The rows must stay
  // where they are until Finish or Clear, and a row with pending tokens must stay with its sequence.
  void Begin(const v1::StepPlan& plan, absl::Span<const BatchSlice> slices);
  // The oldest step is finished, and the rows have the tokens that it has drawn. The blocks of the sequences that have
  // failed lose their labels, and get none from later slices of these rows. REQUIRES: a step is begun.
  void Finish(const google::protobuf::RepeatedPtrField<v1::SequenceFailure>& failures);
  // Removes all labels and forgets the steps that are begun.
  void Clear();

  const BlockLabels& labels() const { return labels_; }

 private:
  struct Slice {
    const SequenceRow* row;
    SequenceId sequence;
    std::shared_ptr<const std::string> cache_root;  // Null: the row has none.
    int first_position;
    int num_tokens;
    int num_unknown;   // Number of last tokens that are still being drawn.
    int first_token;   // Index into Step::tokens.
    int first_entry;   // Index into Step::tables.
    int table_length;  // Up to the end of the slice.
  };
  struct Step {
    std::vector<std::pair<uint32_t, uint32_t>> moves;  // Places, from source to destination, in order.
    std::vector<Slice> slices;
    std::vector<TokenId> tokens;
    std::vector<uint32_t> tables;
  };

  // Reads tokens that have become known.
  static void Resolve(Step* step);

  const uint32_t num_blocks_;
  const int block_size_;
  BlockLabels labels_;
  std::deque<Step> begun_;  // The oldest first.
  Step spare_;              // A finished step, whose memory is used again.
};

}  // namespace quire

#endif  // QUIRE_WORKER_LABEL_KEEPER_H_
