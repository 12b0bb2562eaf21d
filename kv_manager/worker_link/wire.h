// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_WIRE_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_WIRE_H_

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cache_groups.h"
#include "base/ids.h"
#include "kv_manager/worker_link/worker_client.h"
#include "kv_manager/worker_link/worker_inventory.h"
#include "quire/v1/worker.pb.h"
#include "scheduler/step_plan.h"

// Converts between the scheduler's plans and results and the messages of worker.proto. Everything that a worker sends
// is checked here, once and completely. So all other code can rely on it: a result fits its plan, and every id is in
// range.

namespace quire {

// The shape of the answer to one plan.
struct ExpectedResult {
  struct Slice {
    bool sample;
    int num_logprobs;                    // Logprobs of the sampled token, as in SamplingParams; -1: none.
    int num_prompt_logprobs;             // The same for each token of the prompt.
    std::vector<TokenId> prompt_tokens;  // The prompt tokens whose logprobs are due, in order.
    int num_candidates = 0;              // Above 0: the slice reports candidates instead of a token.

    bool pools = false;  // The slice gives an embedding instead of a token.

    bool draws() const { return sample && num_candidates == 0 && !pools; }
    bool embeds() const { return sample && pools; }
    bool lists_candidates() const { return sample && num_candidates > 0; }
  };
  StepId step{0};
  int num_drawn = 0;            // Slices that draw a token.
  int num_candidate_lists = 0;  // Slices that report candidates.
  int num_embeddings = 0;       // Slices that give embeddings.
  bool has_tables = false;
  std::vector<Slice> slices;
  std::vector<int> blocks_per_sheet;  // Of the cache groups from 1 on, if there are tables.
};

// Turns the plans of one session into messages. It remembers for each row what the answers must contain. Not
// thread-safe.
class PlanEncoder {
 public:
  // What the worker answers. A rank above 0 answers with digests alone, and its inventory tells no rows.
  enum class Answers { kResults, kDigests };

  explicit PlanEncoder(Answers answers = Answers::kResults, std::vector<CacheGroup> groups = {CacheGroup{}})
      : answers_(answers), groups_(std::move(groups)) {}

  // Clears `out` first. A message that is used again keeps its memory, so that it needs no allocation.
  ExpectedResult Encode(const StepPlan& plan, v1::StepPlan* out);

  // A sequence of an earlier session is in this row.
  void AdoptRow(const WorkerInventory::Row& row);

 private:
  struct Row {
    int num_logprobs = -1;
    int num_prompt_logprobs = -1;
    std::vector<TokenId> prompt;  // Empty unless the prompt's logprobs are wanted.
    int num_candidates = 0;
    bool pools = false;
  };

  // Adds the vocabulary if the plan is the first that starts a row with a guide.
  void EncodeVocabulary(const StepPlan& plan, v1::StepPlan* out);
  void EncodeStart(const SequenceStart& start, v1::SequenceStart* out);
  void EncodeFork(const SequenceFork& fork, v1::StepPlan* out);
  // Makes room in rows_.
  Row& RowOf(RowId id);
  ExpectedResult::Slice Expect(const SequenceSlice& slice) const;

  const Answers answers_;
  const std::vector<CacheGroup> groups_;
  std::vector<Row> rows_;  // The index is the row id. Unused with kDigests.
  bool has_sent_vocabulary_ = false;
};

// Fails with INTERNAL when the answer does not fit the plan. The message names column, value and limit. An embedding
// has `embedding_size` values.
absl::StatusOr<StepResult> DecodeStepResult(const v1::StepResult& in, ExpectedResult expected, int vocab_size,
                                            int embedding_size = 0);

// The same for a rank above 0, which tells only a digest. The result has no slices.
absl::StatusOr<StepResult> DecodeRankResult(const v1::StepResult& in, StepId expected);

// Fails with FAILED_PRECONDITION when no manager could serve such a worker. The message names field, value and limit.
absl::StatusOr<WorkerDescription> DecodeDescription(const v1::DescribeResponse& in);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_WIRE_H_
