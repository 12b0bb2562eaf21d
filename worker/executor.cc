// SPDX-License-Identifier: Apache-2.0

#include "worker/executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "base/worker_protocol.h"

namespace quire {
namespace {

constexpr int64_t kLogitsBytes = int64_t{64} << 20;
constexpr std::chrono::microseconds kGuidePatience = std::chrono::milliseconds(10);

// Returns the sheets of the group that the slice of a row may read, and those behind them.
void TellSheets(int first_sheet, const SheetSpan& sheets, v1::GroupTables* tables) {
  tables->add_first_sheets(first_sheet);
  tables->add_num_sheets(sheets.end - first_sheet);
  const size_t num_skipped = static_cast<size_t>(first_sheet - sheets.first) * sheets.blocks_per_sheet;
  const size_t num_blocks = static_cast<size_t>(sheets.end - sheets.first) * sheets.blocks_per_sheet;
  tables->mutable_blocks()->Add(sheets.blocks + num_skipped, sheets.blocks + num_blocks);
}

// Returns the tables of the rows in these slices.
v1::RowTables TellTables(absl::Span<const BatchSlice> slices, const WorkerLimits& limits) {
  v1::RowTables tables;
  for (const BatchSlice& slice : slices) {
    const SequenceRow& row = *slice.row;
    tables.add_sequences(Value(row.sequence()));
    tables.add_computed_tokens(row.num_computed());
    tables.add_table_lengths(row.block_table().size());
    tables.mutable_blocks()->Add(row.block_table().begin(), row.block_table().end());
  }
  for (int group = 1; group < static_cast<int>(limits.groups.size()); ++group) {
    v1::GroupTables* const sheets = tables.add_groups();
    for (const BatchSlice& slice : slices) {
      TellSheets(limits.FirstSheet(group, slice.first_position), slice.row->Sheets(group), sheets);
    }
  }
  return tables;
}

absl::Status AboutGroup(const BackendStatus& status) {
  if (status.ok()) return absl::OkStatus();
  return WithReason(absl::UnavailableError(absl::StrCat("the group of ranks has ended: ", status.message())),
                    kGroupPeerLost);
}

}  // namespace

int LogitRowsFor(const WorkerLimits& limits) {
  const int64_t rows = kLogitsBytes / (int64_t{limits.vocab_size} * static_cast<int64_t>(sizeof(float)));
  return static_cast<int>(std::clamp<int64_t>(rows, 1, std::max(limits.max_sequences, limits.max_tokens_per_step)));
}

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(Backend* backend, const Model* model, BlockStorage* storage,
                                                           const WorkerLimits& limits, int max_logit_rows) {
  QUIRE_CHECK_EQ(storage->num_blocks(), limits.num_blocks);
  QUIRE_CHECK_EQ(storage->num_host_blocks(), limits.num_host_blocks);
  QUIRE_CHECK_EQ(storage->layout().block_size, limits.block_size);
  QUIRE_CHECK(limits.groups == model->config.cache_groups);
  for (const CacheGroup& group : limits.groups) {
    if (group.window_tokens == 0 || group.window_tokens >= limits.block_size) continue;
    return InvalidArgument("the window of a cache group has ", group.window_tokens, " tokens, a block has ",
                           limits.block_size, ", which must not be more");
  }
  std::unique_ptr<Executor> executor(new Executor(backend, storage, limits));
  const StepLimits step_limits{.max_tokens = limits.max_tokens_per_step, .max_logit_rows = max_logit_rows};
  QUIRE_ASSIGN_OR_RETURN(executor->transformer_,
                         Transformer::Create(&model->config, &model->weights, backend, step_limits));
  executor->sampler_ = std::make_unique<StepSampler>(backend, executor->transformer_.get(), limits);
  return executor;
}

Executor::Executor(Backend* backend, BlockStorage* storage, const WorkerLimits& limits)
    : backend_(backend),
      storage_(storage),
      limits_(limits),
      batch_(limits),
      check_(limits),
      guides_(limits.vocab_size),
      swapped_out_(limits.num_blocks),
      rows_(limits.max_sequences) {}

void Executor::KeepLabels() {
  QUIRE_CHECK_EQ(last_step_, 0u);
  label_keeper_ = std::make_unique<LabelKeeper>(limits_);
}

void Executor::Reset() {
  backend_->Wait(backend_->Mark());
  sampler_->Reset();
  begun_.clear();
  if (label_keeper_ != nullptr) label_keeper_->Clear();
  rows_ = std::vector<SequenceRow>(limits_.max_sequences);
  last_step_ = 0;
}

bool Executor::CanBegin(const v1::StepPlan& plan) const {
  if (begun_.empty()) return true;
  if (!backend_->IsAsynchronous() || num_begun() == StepSampler::kMaxSteps) return false;
  const auto is_pending = [this](uint32_t row) { return row < rows_.size() && rows_[row].num_pending() > 0; };
  for (const v1::SequenceStart& start : plan.starts()) {
    if (is_pending(start.row())) return false;
  }
  for (const auto* rows : {&plan.end_rows(), &plan.fork_rows(), &plan.fork_parents(), &plan.append_rows()}) {
    if (std::any_of(rows->begin(), rows->end(), is_pending)) return false;
  }
  return std::none_of(plan.slice_rows().begin(), plan.slice_rows().end(),
                      [&](uint32_t row) { return is_pending(row) && rows_[row].sampling().NeedsTokens(); });
}

absl::Status Executor::SetGroup(Collective* group) {
  if (transformer_->num_ranks() == 1) return absl::OkStatus();
  transformer_->SetGroup(group);
  return AboutGroup(backend_->SetGroup(group));
}

absl::Status Executor::GroupStatus() const {
  const Collective* const group = transformer_->group();
  return group == nullptr ? absl::OkStatus() : AboutGroup(group->Status());
}

absl::Status Executor::Begin(const v1::StepPlan& plan) {
  QUIRE_RETURN_IF_ERROR(GroupStatus());
  const int64_t start_us = SteadyClock().NowMicros();
  QUIRE_RETURN_IF_ERROR(check_.Check(plan, last_step_ + 1));
  last_step_ = plan.step();
  if (label_keeper_ != nullptr) NoteSwapsOut(plan);
  QUIRE_RETURN_IF_ERROR(ChangeRows(plan));
  QUIRE_RETURN_IF_ERROR(batch_.Build(plan, absl::MakeSpan(rows_)));
  for (const uint32_t row : plan.slice_rows()) rows_[row].SetLastSlice(start_us);
  MoveBlocks(plan);
  if (label_keeper_ != nullptr) label_keeper_->Begin(plan, batch_.slices());
  WaitForGuides();
  const bool has_slices = !batch_.slices().empty();
  if (has_slices) {
    QUIRE_RETURN_IF_ERROR(sampler_->Begin(batch_, storage_->layout(), storage_->pools()));
  }
  begun_.push_back(
      {plan.step(), start_us, backend_->Mark(), has_slices,
       plan.wants_tables() ? std::make_unique<v1::RowTables>(TellTables(batch_.slices(), limits_)) : nullptr});
  return absl::OkStatus();
}

void Executor::WaitForGuides() {
  const absl::Span<const BatchSlice> slices = batch_.slices();
  const auto lacks_guide = [](const BatchSlice& slice) {
    const RowGuide* const guide = slice.row->sampling().guide();
    return slice.is_sampling && guide != nullptr && !guide->grammar().is_compiled();
  };
  while (!may_postpone_ && std::any_of(slices.begin(), slices.end(), lacks_guide)) guides_.WaitForGuide(kGuidePatience);
  const bool has_nothing_else = std::all_of(slices.begin(), slices.end(), [&](const BatchSlice& slice) {
    return (slice.is_repeat || slice.is_early) && lacks_guide(slice);
  });
  if (may_postpone_ && has_nothing_else && !slices.empty()) guides_.WaitForGuide(kGuidePatience);
}

void Executor::Finish(v1::StepResult* result) {
  const BegunStep step = std::move(begun_.front());
  begun_.erase(begun_.begin());
  backend_->Wait(step.mark);
  result->set_step(step.step);
  if (step.tables != nullptr) *result->mutable_tables() = std::move(*step.tables);
  if (step.has_slices) sampler_->Finish(result);
  if (label_keeper_ != nullptr) label_keeper_->Finish(result->failures());
  // The time in which a step waited for the step before it does not count.
  const int64_t now_us = SteadyClock().NowMicros();
  result->set_duration_us(static_cast<uint32_t>(now_us - std::max(step.start_us, last_finish_us_)));
  last_finish_us_ = now_us;
}

absl::Status Executor::Run(const v1::StepPlan& plan, v1::StepResult* result) {
  QUIRE_RETURN_IF_ERROR(Begin(plan));
  Finish(result);
  return GroupStatus();
}

void Executor::MoveBlocks(const v1::StepPlan& plan) {
  if (plan.swap_out_blocks_size() > 0) {
    storage_->SwapOut(plan.swap_out_blocks().data(), plan.swap_out_host_blocks().data(), plan.swap_out_blocks_size());
  }
  if (plan.swap_in_blocks_size() > 0) {
    storage_->SwapIn(plan.swap_in_host_blocks().data(), plan.swap_in_blocks().data(), plan.swap_in_blocks_size());
  }
  if (plan.copy_sources_size() > 0) {
    storage_->Copy(plan.copy_sources().data(), plan.copy_destinations().data(), plan.copy_sources_size());
  }
}

void Executor::NoteSwapsOut(const v1::StepPlan& plan) {
  if (plan.swap_out_blocks().empty()) return;
  swapped_out_.Clear();
  for (int i = 0; i < plan.swap_out_blocks_size(); ++i) swapped_out_.Mark(plan.swap_out_blocks(i), i);
  for (SequenceRow& row : rows_) {
    for (size_t i = 0; i < row.block_table().size(); ++i) {
      const uint32_t block = row.block_table()[i];
      if (!swapped_out_.IsMarked(block)) continue;
      row.SetSwappedOut(static_cast<int>(i), plan.swap_out_host_blocks(static_cast<int>(swapped_out_.Owner(block))));
    }
  }
}

absl::Status Executor::ChangeRows(const v1::StepPlan& plan) {
  for (uint32_t row : plan.end_rows()) rows_[row] = SequenceRow();
  if (plan.has_vocabulary()) QUIRE_RETURN_IF_ERROR(guides_.SetVocabulary(plan.vocabulary()));
  guides_.BeginStep();
  for (int i = 0; i < plan.starts_size(); ++i) {
    const v1::SequenceStart& start = plan.starts(i);
    SequenceRow& row = rows_[start.row()];
    row.Start(start, limits_.vocab_size);
    if (!start.sampling().has_guided()) continue;
    absl::StatusOr<RowGuide> guide = guides_.Start(start, absl::StrCat("starts[", i, "]"));
    QUIRE_RETURN_IF_ERROR(guide.status());
    row.sampling().SetGuide(*std::move(guide));
  }
  for (int i = 0; i < plan.fork_rows_size(); ++i) {
    const SequenceRow& parent = rows_[plan.fork_parents(i)];
    if (!parent.is_started()) {
      return InvalidArgument("fork_parents[", i, "] is ", plan.fork_parents(i), ", which no sequence has taken");
    }
    if (parent.pooled() != nullptr) {
      return InvalidArgument("fork_parents[", i, "] is ", plan.fork_parents(i), ", which has a pooling");
    }
    rows_[plan.fork_rows(i)].Fork(parent, SequenceId{plan.fork_sequences(i)}, plan.fork_sample_indices(i));
  }
  for (int i = 0; i < plan.append_rows_size(); ++i) {
    SequenceRow& row = rows_[plan.append_rows(i)];
    if (!row.is_started()) {
      return InvalidArgument("append_rows[", i, "] is ", plan.append_rows(i), ", which no sequence has taken");
    }
    if (row.sampling().num_candidates() == 0) {
      return InvalidArgument("append_rows[", i, "] is ", plan.append_rows(i),
                             ", which draws its tokens: its num_candidates is 0");
    }
    if (row.num_tokens() >= limits_.max_context_tokens) {
      return InvalidArgument("append_rows[", i, "] is ", plan.append_rows(i), ", which has ", row.num_tokens(),
                             " tokens, the model's context is ", limits_.max_context_tokens);
    }
    row.Append(static_cast<TokenId>(plan.append_token_ids(i)));
  }
  for (int i = 0; i < plan.record_rows_size(); ++i) {
    SequenceRow& row = rows_[plan.record_rows(i)];
    if (!row.is_started()) {
      return InvalidArgument("record_rows[", i, "] is ", plan.record_rows(i), ", which no sequence has taken");
    }
    row.SetRecord(plan.records(i));
  }
  return absl::OkStatus();
}

}  // namespace quire
