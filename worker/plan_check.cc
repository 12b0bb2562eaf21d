// SPDX-License-Identifier: Apache-2.0

#include "worker/plan_check.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/worker_protocol.h"
#include "worker/start_check.h"

namespace quire {
namespace {

using Column = google::protobuf::RepeatedField<uint32_t>;

absl::Status CheckLength(const char* field, int64_t length, const char* other, int64_t other_length) {
  if (length == other_length) return absl::OkStatus();
  return InvalidArgument(field, " has ", length, " entries, ", other, " has ", other_length);
}

absl::Status CheckBelow(const char* field, const Column& ids, uint32_t limit) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] >= limit) return InvalidArgument(field, "[", i, "] is ", ids[i], ", it must be below ", limit);
  }
  return absl::OkStatus();
}

// Marks the ids. Each may occur only once.
absl::Status MarkDestinations(const char* field, const Column& ids, MarkSet* marks) {
  marks->Clear();
  for (int i = 0; i < ids.size(); ++i) {
    if (!marks->Mark(ids[i]))
      return InvalidArgument(field, "[", i, "] is ", ids[i], ", which is already a destination");
  }
  return absl::OkStatus();
}

}  // namespace

PlanCheck::PlanCheck(const WorkerLimits& limits)
    : limits_(limits),
      started_rows_(limits.max_sequences),
      forked_rows_(limits.max_sequences),
      sliced_rows_(limits.max_sequences),
      appended_rows_(limits.max_sequences),
      other_rows_(limits.max_sequences),
      blocks_(limits.num_blocks),
      host_blocks_(limits.num_host_blocks) {}

absl::Status PlanCheck::Check(const v1::StepPlan& plan, uint64_t expected_step) {
  if (plan.step() != expected_step) return InvalidArgument("step is ", plan.step(), ", expected is ", expected_step);
  QUIRE_RETURN_IF_ERROR(CheckSwaps(plan));
  QUIRE_RETURN_IF_ERROR(CheckCopies(plan));
  QUIRE_RETURN_IF_ERROR(CheckStarts(plan));
  QUIRE_RETURN_IF_ERROR(CheckForks(plan));
  QUIRE_RETURN_IF_ERROR(CheckAppends(plan));
  QUIRE_RETURN_IF_ERROR(CheckEndsAndRecords(plan));
  QUIRE_RETURN_IF_ERROR(CheckSlices(plan));
  return CheckChanges(plan);
}

// A block that is swapped in may have been swapped out in the same plan, because the contract fixes their order.
absl::Status PlanCheck::CheckSwaps(const v1::StepPlan& plan) {
  const int num_outs = plan.swap_out_blocks_size();
  const int num_ins = plan.swap_in_blocks_size();
  QUIRE_RETURN_IF_ERROR(
      CheckLength("swap_out_host_blocks", plan.swap_out_host_blocks_size(), "swap_out_blocks", num_outs));
  QUIRE_RETURN_IF_ERROR(CheckLength("swap_in_host_blocks", plan.swap_in_host_blocks_size(), "swap_in_blocks", num_ins));
  if (limits_.num_host_blocks == 0 && num_outs + num_ins > 0) {
    return InvalidArgument("swap_out_blocks has ", num_outs, " entries and swap_in_blocks ", num_ins,
                           ", this worker has no host tier");
  }
  QUIRE_RETURN_IF_ERROR(CheckBelow("swap_out_blocks", plan.swap_out_blocks(), limits_.num_blocks));
  QUIRE_RETURN_IF_ERROR(CheckBelow("swap_out_host_blocks", plan.swap_out_host_blocks(), limits_.num_host_blocks));
  QUIRE_RETURN_IF_ERROR(CheckBelow("swap_in_host_blocks", plan.swap_in_host_blocks(), limits_.num_host_blocks));
  QUIRE_RETURN_IF_ERROR(CheckBelow("swap_in_blocks", plan.swap_in_blocks(), limits_.num_blocks));
  QUIRE_RETURN_IF_ERROR(MarkDestinations("swap_out_host_blocks", plan.swap_out_host_blocks(), &host_blocks_));
  return MarkDestinations("swap_in_blocks", plan.swap_in_blocks(), &blocks_);
}

absl::Status PlanCheck::CheckCopies(const v1::StepPlan& plan) {
  QUIRE_RETURN_IF_ERROR(
      CheckLength("copy_destinations", plan.copy_destinations_size(), "copy_sources", plan.copy_sources_size()));
  QUIRE_RETURN_IF_ERROR(CheckBelow("copy_sources", plan.copy_sources(), limits_.num_blocks));
  QUIRE_RETURN_IF_ERROR(CheckBelow("copy_destinations", plan.copy_destinations(), limits_.num_blocks));
  QUIRE_RETURN_IF_ERROR(MarkDestinations("copy_destinations", plan.copy_destinations(), &blocks_));
  for (int i = 0; i < plan.copy_sources_size(); ++i) {
    if (blocks_.IsMarked(plan.copy_sources(i))) {
      return InvalidArgument("copy_sources[", i, "] is ", plan.copy_sources(i), ", which is also a destination");
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckStarts(const v1::StepPlan& plan) {
  started_rows_.Clear();
  for (int i = 0; i < plan.starts_size(); ++i) {
    const uint32_t row = plan.starts(i).row();
    const std::string path = absl::StrCat("starts[", i, "]");
    if (row >= static_cast<uint32_t>(limits_.max_sequences)) {
      return InvalidArgument(path, ".row is ", row, ", it must be below ", limits_.max_sequences);
    }
    if (!started_rows_.Mark(row))
      return InvalidArgument(path, ".row is ", row, ", which another start of the plan takes");
    QUIRE_RETURN_IF_ERROR(CheckSequenceStart(plan.starts(i), limits_, path));
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckForks(const v1::StepPlan& plan) {
  const int num_forks = plan.fork_rows_size();
  QUIRE_RETURN_IF_ERROR(CheckLength("fork_parents", plan.fork_parents_size(), "fork_rows", num_forks));
  QUIRE_RETURN_IF_ERROR(CheckLength("fork_sequences", plan.fork_sequences_size(), "fork_rows", num_forks));
  QUIRE_RETURN_IF_ERROR(CheckLength("fork_sample_indices", plan.fork_sample_indices_size(), "fork_rows", num_forks));
  QUIRE_RETURN_IF_ERROR(CheckBelow("fork_rows", plan.fork_rows(), limits_.max_sequences));
  QUIRE_RETURN_IF_ERROR(CheckBelow("fork_parents", plan.fork_parents(), limits_.max_sequences));
  forked_rows_.Clear();
  for (int i = 0; i < num_forks; ++i) {
    const uint32_t row = plan.fork_rows(i);
    const uint32_t parent = plan.fork_parents(i);
    if (started_rows_.IsMarked(row)) {
      return InvalidArgument("fork_rows[", i, "] is ", row, ", which a start of the plan takes");
    }
    if (parent == row) return InvalidArgument("fork_parents[", i, "] is ", parent, ", which is the fork's own row");
    if (forked_rows_.IsMarked(parent)) {
      return InvalidArgument("fork_parents[", i, "] is ", parent, ", which an earlier fork of the plan takes");
    }
    if (!forked_rows_.Mark(row, i)) {
      return InvalidArgument("fork_rows[", i, "] is ", row, ", which an earlier fork of the plan takes");
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckAppends(const v1::StepPlan& plan) {
  const int num_appends = plan.append_rows_size();
  QUIRE_RETURN_IF_ERROR(CheckLength("append_token_ids", plan.append_token_ids_size(), "append_rows", num_appends));
  QUIRE_RETURN_IF_ERROR(CheckBelow("append_rows", plan.append_rows(), limits_.max_sequences));
  QUIRE_RETURN_IF_ERROR(CheckBelow("append_token_ids", plan.append_token_ids(), limits_.vocab_size));
  appended_rows_.Clear();
  for (int i = 0; i < num_appends; ++i) {
    if (!appended_rows_.Mark(plan.append_rows(i))) {
      return InvalidArgument("append_rows[", i, "] is ", plan.append_rows(i),
                             ", which an earlier append of the plan has");
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckEndsAndRecords(const v1::StepPlan& plan) {
  QUIRE_RETURN_IF_ERROR(CheckBelow("end_rows", plan.end_rows(), limits_.max_sequences));
  QUIRE_RETURN_IF_ERROR(CheckLength("records", plan.records_size(), "record_rows", plan.record_rows_size()));
  QUIRE_RETURN_IF_ERROR(CheckBelow("record_rows", plan.record_rows(), limits_.max_sequences));
  other_rows_.Clear();
  for (int i = 0; i < plan.end_rows_size(); ++i) {
    if (!other_rows_.Mark(plan.end_rows(i))) {
      return InvalidArgument("end_rows[", i, "] is ", plan.end_rows(i), ", which an earlier end of the plan has");
    }
  }
  other_rows_.Clear();
  for (int i = 0; i < plan.record_rows_size(); ++i) {
    if (!other_rows_.Mark(plan.record_rows(i))) {
      return InvalidArgument("record_rows[", i, "] is ", plan.record_rows(i),
                             ", which an earlier record of the plan has");
    }
    if (plan.records(i).size() > static_cast<size_t>(kMaxRecordBytes)) {
      return InvalidArgument("records[", i, "] has ", plan.records(i).size(), " bytes, the limit is ", kMaxRecordBytes);
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckSlices(const v1::StepPlan& plan) {
  const int num_slices = plan.slice_rows_size();
  const auto check_length = [&](const char* field, int64_t length) {
    return CheckLength(field, length, "slice_rows", num_slices);
  };
  QUIRE_RETURN_IF_ERROR(check_length("slice_first_positions", plan.slice_first_positions_size()));
  QUIRE_RETURN_IF_ERROR(check_length("slice_num_tokens", plan.slice_num_tokens_size()));
  QUIRE_RETURN_IF_ERROR(check_length("slice_first_changed_blocks", plan.slice_first_changed_blocks_size()));
  QUIRE_RETURN_IF_ERROR(check_length("slice_tail_lengths", plan.slice_tail_lengths_size()));
  QUIRE_RETURN_IF_ERROR(check_length("slice_samples", plan.slice_samples().size()));
  QUIRE_RETURN_IF_ERROR(CheckBelow("slice_rows", plan.slice_rows(), limits_.max_sequences));
  QUIRE_RETURN_IF_ERROR(CheckBelow("block_tails", plan.block_tails(), limits_.num_blocks));
  sliced_rows_.Clear();
  for (int i = 0; i < num_slices; ++i) {
    if (!sliced_rows_.Mark(plan.slice_rows(i), i)) {
      return InvalidArgument("slice_rows[", i, "] is ", plan.slice_rows(i), ", which an earlier slice of the plan has");
    }
    if (static_cast<uint8_t>(plan.slice_samples()[i]) > 1) {
      return InvalidArgument("slice_samples[", i, "] is ", static_cast<uint8_t>(plan.slice_samples()[i]),
                             ", it must be 0 or 1");
    }
  }
  for (int i = 0; i < num_slices; ++i) {
    if (plan.slice_num_tokens(i) == 0) QUIRE_RETURN_IF_ERROR(CheckEmptySlice(plan, i));
  }
  return CheckSliceSums(plan);
}

absl::Status PlanCheck::CheckSliceSums(const v1::StepPlan& plan) const {
  uint64_t num_tokens = 0;
  uint64_t tail_length = 0;
  for (int i = 0; i < plan.slice_rows_size(); ++i) {
    const bool is_repeat = plan.slice_num_tokens(i) == 0 && !forked_rows_.IsMarked(plan.slice_rows(i));
    num_tokens += is_repeat ? 1 : plan.slice_num_tokens(i);
  }
  for (uint32_t slice_tail_length : plan.slice_tail_lengths()) tail_length += slice_tail_length;
  if (num_tokens > static_cast<uint64_t>(limits_.max_tokens_per_step)) {
    return InvalidArgument("slice_num_tokens add up to ", num_tokens, ", the limit per step is ",
                           limits_.max_tokens_per_step);
  }
  if (tail_length != static_cast<uint64_t>(plan.block_tails_size())) {
    return InvalidArgument("slice_tail_lengths add up to ", tail_length, ", block_tails has ", plan.block_tails_size(),
                           " entries");
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckChanges(const v1::StepPlan& plan) const {
  const int num_changes = plan.change_slices_size();
  QUIRE_RETURN_IF_ERROR(CheckLength("change_groups", plan.change_groups_size(), "change_slices", num_changes));
  QUIRE_RETURN_IF_ERROR(
      CheckLength("change_first_sheets", plan.change_first_sheets_size(), "change_slices", num_changes));
  QUIRE_RETURN_IF_ERROR(CheckLength("change_num_sheets", plan.change_num_sheets_size(), "change_slices", num_changes));
  QUIRE_RETURN_IF_ERROR(CheckBelow("change_slices", plan.change_slices(), plan.slice_rows_size()));
  QUIRE_RETURN_IF_ERROR(
      CheckBelow("change_groups", plan.change_groups(), static_cast<uint32_t>(limits_.groups.size())));
  QUIRE_RETURN_IF_ERROR(CheckBelow("change_blocks", plan.change_blocks(), limits_.num_blocks));
  uint64_t num_blocks = 0;
  for (int i = 0; i < num_changes; ++i) {
    QUIRE_RETURN_IF_ERROR(CheckChange(plan, i));
    num_blocks += uint64_t{plan.change_num_sheets(i)} * limits_.groups[plan.change_groups(i)].blocks_per_sheet;
  }
  if (num_blocks != static_cast<uint64_t>(plan.change_blocks_size())) {
    return InvalidArgument("the sheets of change_num_sheets have ", num_blocks, " blocks, change_blocks has ",
                           plan.change_blocks_size(), " entries");
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckChange(const v1::StepPlan& plan, int index) const {
  const uint32_t slice = plan.change_slices(index), group = plan.change_groups(index);
  if (group == 0) return InvalidArgument("change_groups[", index, "] is 0, slices tell the changes of that group");
  if (index > 0 &&
      std::make_pair(slice, group) <= std::make_pair(plan.change_slices(index - 1), plan.change_groups(index - 1))) {
    return InvalidArgument("change_slices[", index, "] is ", slice, " for group ", group, ", after slice ",
                           plan.change_slices(index - 1), " for group ", plan.change_groups(index - 1));
  }
  const uint64_t num_sheets = plan.change_num_sheets(index), most = limits_.NumBlocksFor(limits_.max_context_tokens);
  if (num_sheets == 0) return InvalidArgument("change_num_sheets[", index, "] is 0, it must be at least 1");
  if (plan.change_first_sheets(index) + num_sheets > most) {
    return InvalidArgument("change_first_sheets[", index, "] is ", plan.change_first_sheets(index), " with ",
                           num_sheets, " sheets, the model's context has ", most);
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckEmptySlice(const v1::StepPlan& plan, int index) const {
  const uint32_t row = plan.slice_rows(index);
  const auto bad = [&](const auto&... parts) {
    return InvalidArgument("slice_num_tokens[", index, "] is 0, ", parts...);
  };
  if (plan.slice_samples()[index] == 0) return bad("such a slice samples, slice_samples[", index, "] is 0");
  if (!forked_rows_.IsMarked(row)) {
    if (!appended_rows_.IsMarked(row)) return absl::OkStatus();
    return bad("an append of the plan changes row ", row);
  }
  const uint32_t parent = plan.fork_parents(static_cast<int>(forked_rows_.Owner(row)));
  // When a later start or fork of the plan takes the parent's row, that row has another sequence by the time of its
  // slice.
  if (forked_rows_.IsMarked(parent)) return bad("its parent, row ", parent, ", is taken by a fork of the plan");
  for (uint32_t either : {row, parent}) {
    if (appended_rows_.IsMarked(either)) return bad("an append of the plan changes row ", either);
  }
  if (!sliced_rows_.IsMarked(parent)) return bad("its parent, row ", parent, ", has no slice");
  const int parent_slice = static_cast<int>(sliced_rows_.Owner(parent));
  if (plan.slice_samples()[parent_slice] == 0) {
    return bad("its parent's slice, ", parent_slice, ", does not sample");
  }
  const uint64_t parent_end = uint64_t{plan.slice_first_positions(parent_slice)} + plan.slice_num_tokens(parent_slice);
  if (parent_end != plan.slice_first_positions(index)) {
    return bad("its position is ", plan.slice_first_positions(index), ", its parent's slice, ", parent_slice,
               ", ends at ", parent_end);
  }
  return absl::OkStatus();
}

}  // namespace quire
