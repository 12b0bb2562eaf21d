#include "worker/plan_check.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "worker/start_check.h"

namespace quire {
namespace {

using Column = google::protobuf::RepeatedField<uint32_t>;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckLength(const char* field, int64_t length, int num_slices) {
  if (length == num_slices) return absl::OkStatus();
  return Bad(field, " has ", length, " entries, slice_rows has ", num_slices);
}

absl::Status CheckBelow(const char* field, const Column& ids, uint32_t limit) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] >= limit) return Bad(field, "[", i, "] is ", ids[i], ", it must be below ", limit);
  }
  return absl::OkStatus();
}

}  // namespace

PlanCheck::PlanCheck(const WorkerLimits& limits)
    : limits_(limits), rows_(limits.max_sequences), blocks_(limits.num_blocks) {}

absl::Status PlanCheck::Check(const v1::StepPlan& plan, uint64_t expected_step) {
  if (plan.step() != expected_step) return Bad("step is ", plan.step(), ", expected is ", expected_step);
  QUIRE_RETURN_IF_ERROR(CheckStarts(plan));
  QUIRE_RETURN_IF_ERROR(CheckCopies(plan));
  return CheckSlices(plan);
}

absl::Status PlanCheck::CheckStarts(const v1::StepPlan& plan) {
  rows_.Clear();
  for (int i = 0; i < plan.starts_size(); ++i) {
    const uint32_t row = plan.starts(i).row();
    const std::string path = absl::StrCat("starts[", i, "]");
    if (row >= static_cast<uint32_t>(limits_.max_sequences)) {
      return Bad(path, ".row is ", row, ", it must be below ", limits_.max_sequences);
    }
    if (!rows_.Mark(row)) return Bad(path, ".row is ", row, ", which another start of the plan takes");
    QUIRE_RETURN_IF_ERROR(CheckSequenceStart(plan.starts(i), limits_, path));
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckCopies(const v1::StepPlan& plan) {
  if (plan.copy_sources_size() != plan.copy_destinations_size()) {
    return Bad("copy_destinations has ", plan.copy_destinations_size(), " entries, copy_sources has ",
               plan.copy_sources_size());
  }
  QUIRE_RETURN_IF_ERROR(CheckBelow("copy_sources", plan.copy_sources(), limits_.num_blocks));
  QUIRE_RETURN_IF_ERROR(CheckBelow("copy_destinations", plan.copy_destinations(), limits_.num_blocks));
  blocks_.Clear();
  for (int i = 0; i < plan.copy_destinations_size(); ++i) {
    if (!blocks_.Mark(plan.copy_destinations(i))) {
      return Bad("copy_destinations[", i, "] is ", plan.copy_destinations(i), ", which is a destination already");
    }
  }
  for (int i = 0; i < plan.copy_sources_size(); ++i) {
    if (blocks_.IsMarked(plan.copy_sources(i))) {
      return Bad("copy_sources[", i, "] is ", plan.copy_sources(i), ", which is a destination as well");
    }
  }
  return absl::OkStatus();
}

absl::Status PlanCheck::CheckSlices(const v1::StepPlan& plan) {
  const int num_slices = plan.slice_rows_size();
  QUIRE_RETURN_IF_ERROR(CheckLength("slice_first_positions", plan.slice_first_positions_size(), num_slices));
  QUIRE_RETURN_IF_ERROR(CheckLength("slice_num_tokens", plan.slice_num_tokens_size(), num_slices));
  QUIRE_RETURN_IF_ERROR(CheckLength("slice_first_changed_blocks", plan.slice_first_changed_blocks_size(), num_slices));
  QUIRE_RETURN_IF_ERROR(CheckLength("slice_tail_lengths", plan.slice_tail_lengths_size(), num_slices));
  QUIRE_RETURN_IF_ERROR(CheckLength("slice_samples", plan.slice_samples().size(), num_slices));
  QUIRE_RETURN_IF_ERROR(CheckBelow("slice_rows", plan.slice_rows(), limits_.max_sequences));
  QUIRE_RETURN_IF_ERROR(CheckBelow("block_tails", plan.block_tails(), limits_.num_blocks));
  rows_.Clear();
  uint64_t num_tokens = 0;
  uint64_t tail_length = 0;
  for (int i = 0; i < num_slices; ++i) {
    if (!rows_.Mark(plan.slice_rows(i))) {
      return Bad("slice_rows[", i, "] is ", plan.slice_rows(i), ", which an earlier slice of the plan has");
    }
    if (plan.slice_num_tokens(i) < 1) return Bad("slice_num_tokens[", i, "] is 0, it must be at least 1");
    if (static_cast<uint8_t>(plan.slice_samples()[i]) > 1) {
      return Bad("slice_samples[", i, "] is ", static_cast<uint8_t>(plan.slice_samples()[i]), ", allowed are 0 and 1");
    }
    num_tokens += plan.slice_num_tokens(i);
    tail_length += plan.slice_tail_lengths(i);
  }
  if (num_tokens > static_cast<uint64_t>(limits_.max_tokens_per_step)) {
    return Bad("slice_num_tokens add up to ", num_tokens, ", the limit per step is ", limits_.max_tokens_per_step);
  }
  if (tail_length != static_cast<uint64_t>(plan.block_tails_size())) {
    return Bad("slice_tail_lengths add up to ", tail_length, ", block_tails has ", plan.block_tails_size(), " entries");
  }
  return absl::OkStatus();
}

}  // namespace quire
