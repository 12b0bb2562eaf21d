// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_TABLE_AUDIT_H_
#define QUIRE_KV_MANAGER_ENGINE_TABLE_AUDIT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "scheduler/block_manager.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_plan.h"

namespace quire {

// The first difference between a worker's row and what the manager expects in it.
struct RowDifference {
  enum class Kind {
    kSequence,        // The row belongs to another sequence.
    kComputedTokens,  // The row has computed more or fewer tokens.
    kTableLength,     // The block table has more or fewer entries.
    kBlock,           // An entry of the block table is another block.
  };
  Kind kind = Kind::kSequence;
  RowId row{0};
  RequestId request{0};
  int index = 0;  // The index of the entry, for kBlock.
  uint64_t expected = 0;
  uint64_t found = 0;

  bool operator==(const RowDifference&) const = default;
};

// The result of a comparison.
struct TableAudit {
  static constexpr size_t kMaxDifferences = 100;
  // The most entries that the tables of one step may have. More do not fit into the worker's message.
  static constexpr size_t kMaxEntries = size_t{8} << 20;

  int num_rows = 0;                          // Rows that were compared.
  std::vector<RowDifference> differences{};  // One for each row that differs, at most kMaxDifferences.
  int num_differences = 0;
  bool is_repaired = false;        // See OnResult.
  absl::Status not_compared = {};  // The reason why nothing was compared, otherwise OK.
};

// Compares the block tables in a worker's rows with the tables of the block manager. The worker sends its tables with
// the result of a step, as they are after the plan of that step. So both sides belong to the same moment, however many
// plans are in flight. Owned by the step-loop thread.
class TableAuditor {
 public:
  using Done = std::function<void(const TableAudit&)>;
  static constexpr size_t kMaxAsked = 64;

  // Calls `done` exactly once. There are five cases:
  //
  //   - A step is planned: with its result, or at once if its tables are too large for a message.
  //   - No request is running: at the end of the round.
  //   - No step has been planned before `deadline_us`: at that time.
  //   - The worker is lost: at once.
  //   - Too many audits wait: within this call.
  //
  // `done` must be quick. With `is_repair_wanted`, differences are repaired as OnResult says.
  void Ask(int64_t deadline_us, bool is_repair_wanted, Done done);

  // A plan was made, and nothing has changed since. When an audit waits, this copies the tables of the plan's rows.
  void OnPlanned(const Scheduler& scheduler, const BlockManager& blocks, StepPlan* plan);
  // A result has come and is not committed yet. If a repair is wanted, a table that differs is sent again with the next
  // slice of its row. An error means that this is not enough: a row belongs to another sequence or has computed another
  // number of tokens. Then the session must end, so that everything is computed again in the next one.
  absl::Status OnResult(const StepResult& result, Scheduler* scheduler);
  // Called in every round. Without running requests there is nothing to compare.
  void OnRound(int64_t now_us, int num_running);
  // The session has ended, and the worker's rows with it.
  void OnLost(const absl::Status& reason);

  int64_t next_deadline_us() const;

 private:
  struct Asked {
    int64_t deadline_us;
    bool is_repair_wanted;
    Done done;
  };
  struct ExpectedRow {
    RowId row;
    RequestId request;
    RowTable table;
    int num_settled;  // The first entries of the table, which the worker has been told.
  };
  struct Comparison {
    StepId step;
    std::vector<ExpectedRow> rows;
    std::vector<Asked> asked;
  };

  static bool Differs(const ExpectedRow& expected, const RowTable& found, RowDifference* difference);
  static void Answer(std::vector<Asked>* asked, const TableAudit& audit);

  std::vector<Asked> asked_;            // Audits that wait for a plan.
  std::deque<Comparison> comparisons_;  // Audits of plans in flight, oldest first.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_TABLE_AUDIT_H_
