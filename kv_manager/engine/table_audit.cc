// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/table_audit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace quire {
namespace {

bool IsInTheTable(const RowDifference& difference) {
  return difference.kind == RowDifference::Kind::kTableLength || difference.kind == RowDifference::Kind::kBlock;
}

}  // namespace

void TableAuditor::Ask(int64_t deadline_us, bool is_repair_wanted, Done done) {
  if (asked_.size() < kMaxAsked) {
    asked_.push_back({deadline_us, is_repair_wanted, std::move(done)});
  } else {
    done({.not_compared = absl::ResourceExhaustedError(
              absl::StrCat(kMaxAsked, " audits wait for a step, and the limit is ", kMaxAsked))});
  }
}

void TableAuditor::OnPlanned(const Scheduler& scheduler, const BlockManager& blocks, StepPlan* plan) {
  if (asked_.empty() || plan->slices.empty()) return;
  size_t num_entries = 0;
  for (const SequenceSlice& slice : plan->slices) {
    const Sequence* const sequence = scheduler.OccupantOf(slice.row).sequence;
    QUIRE_CHECK(sequence != nullptr) << "a slice of row " << Value(slice.row) << ", in which nobody runs";
    num_entries += blocks.Table(sequence->id()).size();
  }
  if (num_entries > TableAudit::kMaxEntries) {
    return Answer(&asked_, {.not_compared = absl::ResourceExhaustedError(absl::StrCat(
                                "its tables have ", num_entries, " entries, the limit is ", TableAudit::kMaxEntries))});
  }
  plan->wants_tables = true;
  Comparison comparison{plan->step, {}, std::exchange(asked_, {})};
  comparison.rows.reserve(plan->slices.size());
  for (const SequenceSlice& slice : plan->slices) {
    const auto [request, sequence] = scheduler.OccupantOf(slice.row);
    const absl::Span<const BlockId> table = blocks.Table(sequence->id());
    comparison.rows.push_back(
        {slice.row,
         request,
         {sequence->id(), sequence->num_computed_tokens(), std::vector<BlockId>(table.begin(), table.end())},
         std::min(static_cast<int>(table.size()), sequence->first_changed_block())});
  }
  comparisons_.push_back(std::move(comparison));
}

absl::Status TableAuditor::OnResult(const StepResult& result, Scheduler* scheduler) {
  if (comparisons_.empty() || comparisons_.front().step != result.step) return absl::OkStatus();
  Comparison comparison = std::move(comparisons_.front());
  comparisons_.pop_front();
  QUIRE_CHECK_EQ(comparison.rows.size(), result.tables.size());
  const bool is_repair_wanted = std::any_of(comparison.asked.begin(), comparison.asked.end(),
                                            [](const Asked& asked) { return asked.is_repair_wanted; });
  absl::Status status;
  TableAudit audit{.num_rows = static_cast<int>(comparison.rows.size())};
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    ExpectedRow& expected = comparison.rows[i];
    // A slice that came before a postponed draw has computed nothing.
    if (result.slices[i].is_postponed) expected.table.num_computed = result.tables[i].num_computed;
    RowDifference difference;
    if (!Differs(expected, result.tables[i], &difference)) continue;
    ++audit.num_differences;
    if (audit.differences.size() < TableAudit::kMaxDifferences) audit.differences.push_back(difference);
    if (!is_repair_wanted) continue;
    if (IsInTheTable(difference)) {
      scheduler->SendTableAgain(expected.row, expected.table.sequence);
    } else {
      status = absl::InternalError(absl::StrCat("an audit found that row ", Value(expected.row),
                                                " holds what it should not; the session restarts"));
    }
  }
  audit.is_repaired = is_repair_wanted && audit.num_differences > 0;
  Answer(&comparison.asked, audit);
  return status;
}

void TableAuditor::OnRound(int64_t now_us, int num_running) {
  if (asked_.empty()) return;
  if (num_running == 0) Answer(&asked_, {});
  std::vector<Asked> late;
  std::erase_if(asked_, [&](Asked& asked) {
    const bool is_late = asked.deadline_us <= now_us;
    if (is_late) late.push_back(std::move(asked));
    return is_late;
  });
  Answer(&late, {.not_compared = absl::DeadlineExceededError("the worker began no step in time")});
}

void TableAuditor::OnLost(const absl::Status& reason) {
  for (Comparison& comparison : comparisons_) Answer(&comparison.asked, {.not_compared = reason});
  comparisons_.clear();
  Answer(&asked_, {.not_compared = reason});
}

int64_t TableAuditor::next_deadline_us() const {
  int64_t next_us = std::numeric_limits<int64_t>::max();
  for (const Asked& asked : asked_) next_us = std::min(next_us, asked.deadline_us);
  return next_us;
}

bool TableAuditor::Differs(const ExpectedRow& expected, const RowTable& found, RowDifference* difference) {
  using Kind = RowDifference::Kind;
  const auto differ = [&](Kind kind, int index, uint64_t is, uint64_t should_be) {
    *difference = {kind, expected.row, expected.request, index, should_be, is};
    return true;
  };
  const RowTable& table = expected.table;
  if (found.sequence != table.sequence) {
    return differ(Kind::kSequence, 0, Value(found.sequence), Value(table.sequence));
  }
  if (found.num_computed != table.num_computed) {
    return differ(Kind::kComputedTokens, 0, found.num_computed, table.num_computed);
  }
  const bool is_settled = expected.num_settled == static_cast<int>(table.blocks.size());
  if (is_settled ? found.blocks.size() != table.blocks.size()
                 : static_cast<int>(found.blocks.size()) < expected.num_settled) {
    return differ(Kind::kTableLength, 0, found.blocks.size(), table.blocks.size());
  }
  for (int i = 0; i < expected.num_settled; ++i) {
    if (found.blocks[i] != table.blocks[i]) {
      return differ(Kind::kBlock, i, Value(found.blocks[i]), Value(table.blocks[i]));
    }
  }
  return false;
}

void TableAuditor::Answer(std::vector<Asked>* asked, const TableAudit& audit) {
  for (const Asked& one : std::exchange(*asked, {})) {
    TableAudit told = audit;
    told.is_repaired = audit.is_repaired && one.is_repair_wanted;
    one.done(told);
  }
}

}  // namespace quire
