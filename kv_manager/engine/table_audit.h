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

// The first thing in which a worker's row differs from what the manager has it hold.
struct RowDifference {
  enum class Kind {
    kSequence,        // Another sequence's.
    kComputedTokens,  // More or fewer tokens are computed.
    kTableLength,     // Its block table has more or fewer entries.
    kBlock,           // An entry is another block.
  };
  Kind kind = Kind::kSequence;
  RowId row{0};
  RequestId request{0};
  int index = 0;  // Of the entry.
  uint64_t expected = 0;
  uint64_t found = 0;

  bool operator==(const RowDifference&) const = default;
};

// What a worker's account of its rows has brought to light.
struct TableAudit {
  static constexpr size_t kMaxDifferences = 100;
  // Of the tables of one step: what is longer does not fit the worker's message.
  static constexpr size_t kMaxEntries = size_t{8} << 20;

  int num_rows = 0;                          // Compared.
  std::vector<RowDifference> differences{};  // The first kMaxDifferences, one for each row.
  int num_differences = 0;
  bool is_repaired = false;        // See OnResult.
  absl::Status not_compared = {};  // Why not, otherwise OK.
};

// Compares the block tables that a worker's rows hold with those of the block manager. The worker tells them with the
// result of a step, as of the plan of that step, so that both are of the same moment however many plans are under way.
// Owned by the step-loop thread.
class TableAuditor {
 public:
  using Done = std::function<void(const TableAudit&)>;
  static constexpr size_t kMaxAsked = 64;

  // `done` is called once: after the next step that is planned, at `deadline_us` without one, or when the worker is
  // lost; within this call when too many wait. It must be quick.
  void Ask(int64_t deadline_us, bool repairs, Done done);

  // A plan was made, and nothing has changed since. Costs what the tables of its rows are long, if anybody asks.
  void OnPlanned(const Scheduler& scheduler, const BlockManager& blocks, StepPlan* plan);
  // Its result, before it is committed. To repair, tables that differ are sent anew with their rows' next slices. An
  // error asks for more: a row holds another sequence or has computed another number of tokens, and the session must
  // end, so that all is computed anew in the next one.
  absl::Status OnResult(const StepResult& result, Scheduler* scheduler);
  // Every round. Without requests that run there is nothing to compare.
  void OnRound(int64_t now_us, int num_running);
  // The rows are gone.
  void OnLost(const absl::Status& reason);

  int64_t next_deadline_us() const;

 private:
  struct Asked {
    int64_t deadline_us;
    bool repairs;
    Done done;
  };
  struct ExpectedRow {
    RowId row;
    RequestId request;
    RowTable table;
    int num_settled;  // Entries of the table that the worker has been told.
  };
  struct Comparison {
    StepId step;
    std::vector<ExpectedRow> rows;
    std::vector<Asked> asked;
  };

  static bool Differs(const ExpectedRow& expected, const RowTable& found, RowDifference* difference);
  static void Answer(std::vector<Asked>* asked, const TableAudit& audit);

  std::vector<Asked> asked_;            // Since the last plan.
  std::deque<Comparison> comparisons_;  // Of plans under way, the oldest first.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_TABLE_AUDIT_H_
