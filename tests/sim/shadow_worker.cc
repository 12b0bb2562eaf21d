// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/shadow_worker.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kv_manager/worker_link/cache_root.h"
#include "kv_manager/worker_link/row_record.h"

namespace quire {
namespace {

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}

}  // namespace

uint64_t DigestOf(const StepResult& result) {
  uint64_t digest = MixBits(Value(result.step));
  const auto add = [&digest](uint64_t value) { digest = MixBits(digest * 3 + value + 1); };
  for (const SliceResult& slice : result.slices) {
    add(slice.sampled + 2 * slice.is_postponed + 4 * slice.failure.has_value());
    add(static_cast<uint64_t>(slice.token.token));
    for (const TokenLogprob& candidate : slice.candidates) add(static_cast<uint64_t>(candidate.token));
    for (const ScoredToken& token : slice.prompt_logprobs) add(static_cast<uint64_t>(token.token));
  }
  for (const RowTable& table : result.tables) {
    add(Value(table.sequence));
    add(static_cast<uint64_t>(table.num_computed));
    for (const BlockId block : table.blocks) add(Value(block));
    for (const RowTable::Sheets& sheets : table.groups) {
      add(static_cast<uint64_t>(sheets.first_sheet));
      for (const BlockId block : sheets.blocks) add(Value(block));
    }
  }
  return digest;
}

uint64_t DigestOf(const WorkerInventory& inventory) {
  uint64_t digest = MixBits(inventory.epoch + Value(inventory.last_step));
  const auto add = [&digest](uint64_t value) { digest = MixBits(digest * 3 + value + 1); };
  for (const WorkerInventory::Row& row : inventory.rows) {
    add(Value(row.row));
    add(Value(row.sequence));
    add(static_cast<uint64_t>(row.num_computed));
    for (const TokenId token : row.tokens) add(static_cast<uint64_t>(token));
    for (const BlockId block : row.blocks) add(Value(block));
    for (const WorkerInventory::SwappedBlock& swapped : row.swapped) add(Value(swapped.block));
    for (const char c : row.record) add(static_cast<unsigned char>(c));
  }
  for (const WorkerInventory::Label& label : inventory.labels) {
    add(Value(label.block) * 2 + label.is_host);
    for (const TokenId token : label.tokens) add(static_cast<uint64_t>(token));
  }
  return digest;
}

ShadowWorker::ShadowWorker(const ShadowModel& model, int num_blocks, int block_size, int num_rows, int num_host_blocks,
                           std::vector<CacheGroup> groups)
    : model_(model),
      num_blocks_(num_blocks),
      block_size_(block_size),
      groups_(std::move(groups)),
      rows_(num_rows),
      slots_(static_cast<size_t>(num_blocks) * block_size),
      host_slots_(static_cast<size_t>(num_host_blocks) * block_size),
      written_in_(slots_.size(), StepId{0}) {}

absl::StatusOr<StepResult> ShadowWorker::Execute(const StepPlan& plan) {
  if (Value(plan.step) != Value(last_step_) + 1) {
    return Broken("step ", Value(plan.step), " follows step ", Value(last_step_));
  }
  last_step_ = plan.step;
  early_sequences_.clear();
  if (plan.empty()) return Broken("step ", Value(plan.step), " is empty");
  QUIRE_RETURN_IF_ERROR(Swap(plan));
  QUIRE_RETURN_IF_ERROR(Copy(plan.copies));
  for (std::optional<Row>& row : rows_) {
    if (row.has_value()) row->parent.reset();
  }
  for (const RowId row : plan.end_rows) {
    if (Value(row) >= rows_.size()) return Broken("end of row ", Value(row), " of ", rows_.size());
    rows_[Value(row)].reset();
  }
  for (const SequenceStart& start : plan.starts) QUIRE_RETURN_IF_ERROR(Start(start));
  for (const SequenceFork& fork : plan.forks) QUIRE_RETURN_IF_ERROR(Fork(fork));
  for (const TokenAppend& append : plan.appends) QUIRE_RETURN_IF_ERROR(Append(append));
  for (const RecordChange& change : plan.records) QUIRE_RETURN_IF_ERROR(Record(change));
  // Every store of the step happens before any read, as if the rows ran in the least convenient order.
  for (size_t i = 0; i < plan.slices.size(); ++i) QUIRE_RETURN_IF_ERROR(Store(plan, static_cast<int>(i)));
  StepResult result;
  result.step = plan.step;
  for (const SequenceSlice& slice : plan.slices) {
    QUIRE_RETURN_IF_ERROR(Read(slice));
    result.slices.push_back(Finish(slice));
  }
  if (plan.wants_tables) result.tables = TellTables(plan);
  return result;
}

std::vector<RowTable> ShadowWorker::TellTables(const StepPlan& plan) const {
  std::vector<RowTable> tables;
  for (const SequenceSlice& slice : plan.slices) {
    const Row& row = *rows_[Value(slice.row)];
    tables.push_back({row.start.sequence, row.num_stored, row.table, row.sheets});
  }
  return tables;
}

void ShadowWorker::Row::Append(TokenId token) {
  prefix_hashes.push_back(ExtendPrefix(tokens.empty() ? kEmptyPrefix : prefix_hashes.back(), token));
  tokens.push_back(token);
}

absl::Status ShadowWorker::Start(const SequenceStart& start) {
  if (Value(start.row) >= rows_.size()) return Broken("row ", Value(start.row), " of ", rows_.size());
  const int num_tokens = static_cast<int>(start.tokens.size());
  if (start.prompt_length < 1 || start.prompt_length > num_tokens) {
    return Broken("prompt of ", start.prompt_length, " tokens among ", num_tokens);
  }
  Row row;
  row.start = start;
  for (TokenId token : start.tokens) row.Append(token);
  row.prompt_scores = std::make_shared<std::vector<ScoredToken>>(start.prompt_scores);
  row.start.prompt_scores.clear();
  rows_[Value(start.row)] = std::move(row);
  return absl::OkStatus();
}

absl::Status ShadowWorker::Fork(const SequenceFork& fork) {
  if (Value(fork.row) >= rows_.size() || Value(fork.parent) >= rows_.size() || !rows_[Value(fork.parent)].has_value()) {
    return Broken("row ", Value(fork.row), " forked from row ", Value(fork.parent));
  }
  Row row = *rows_[Value(fork.parent)];
  row.start.sequence = fork.sequence;
  row.start.sample_index = fork.sample_index;
  row.parent = fork.parent;
  rows_[Value(fork.row)] = std::move(row);
  return absl::OkStatus();
}

absl::Status ShadowWorker::Record(const RecordChange& change) {
  if (Value(change.row) >= rows_.size() || !rows_[Value(change.row)].has_value()) {
    return Broken("record for row ", Value(change.row));
  }
  SequenceStart& start = rows_[Value(change.row)]->start;
  if (change.record == nullptr || start.record == nullptr || *start.record != *change.record) {
    return Broken("row ", Value(change.row), " gets the record of another request");
  }
  start.num_cached_tokens = change.num_cached_tokens;
  start.search = change.search;
  start.num_moves = change.num_moves;
  start.numerics_change = change.numerics_change;
  return absl::OkStatus();
}

absl::Status ShadowWorker::Append(const TokenAppend& append) {
  if (Value(append.row) >= rows_.size() || !rows_[Value(append.row)].has_value()) {
    return Broken("token for row ", Value(append.row));
  }
  Row& row = *rows_[Value(append.row)];
  if (row.start.sampling.num_candidates == 0) return Broken("token for row ", Value(append.row), ", which draws");
  row.Append(append.token);
  return absl::OkStatus();
}

absl::Status ShadowWorker::Swap(const StepPlan& plan) {
  const auto check = [&](const BlockSwap& swap) {
    if (Value(swap.device) < static_cast<uint32_t>(num_blocks_) &&
        Value(swap.host) * static_cast<size_t>(block_size_) < host_slots_.size()) {
      return absl::OkStatus();
    }
    return Broken("swap of block ", Value(swap.device), " and host block ", Value(swap.host));
  };
  absl::flat_hash_set<BlockId> destinations;
  for (const BlockSwap& swap : plan.swap_outs) {
    QUIRE_RETURN_IF_ERROR(check(swap));
    if (!destinations.insert(swap.host).second) return Broken("two swaps to host block ", Value(swap.host));
    std::copy_n(slots_.begin() + int64_t{Value(swap.device)} * block_size_, block_size_,
                host_slots_.begin() + int64_t{Value(swap.host)} * block_size_);
  }
  destinations.clear();
  for (const BlockSwap& swap : plan.swap_ins) {
    QUIRE_RETURN_IF_ERROR(check(swap));
    if (!destinations.insert(swap.device).second) return Broken("two swaps to block ", Value(swap.device));
    std::copy_n(host_slots_.begin() + int64_t{Value(swap.host)} * block_size_, block_size_,
                slots_.begin() + int64_t{Value(swap.device)} * block_size_);
  }
  return absl::OkStatus();
}

// A real worker may run the copies of a step at the same time, so no copy may depend on another.
absl::Status ShadowWorker::Copy(const std::vector<BlockCopy>& copies) {
  absl::flat_hash_set<BlockId> sources;
  absl::flat_hash_set<BlockId> destinations;
  for (const BlockCopy& copy : copies) {
    if (Value(copy.source) >= static_cast<uint32_t>(num_blocks_) ||
        Value(copy.destination) >= static_cast<uint32_t>(num_blocks_)) {
      return Broken("copy of block ", Value(copy.source), " to ", Value(copy.destination), " of ", num_blocks_);
    }
    sources.insert(copy.source);
    if (!destinations.insert(copy.destination).second) return Broken("two copies to ", Value(copy.destination));
  }
  for (const BlockCopy& copy : copies) {
    if (sources.contains(copy.destination)) return Broken("copies both from and to ", Value(copy.destination));
    for (int i = 0; i < block_size_; ++i) {
      const size_t source = static_cast<size_t>(Value(copy.source)) * block_size_ + i;
      Slot& destination = slots_[static_cast<size_t>(Value(copy.destination)) * block_size_ + i];
      destination = slots_[source];
      // Who shares a part of a block also has the tokens that have failed, if it reads them.
      destination.is_poisoned = false;
    }
  }
  return absl::OkStatus();
}

std::optional<BlockId> ShadowWorker::SheetBlock(const Row& row, int group, int sheet, int part) const {
  const RowTable::Sheets& sheets = row.sheets[group - 1];
  const int index = (sheet - sheets.first_sheet) * groups_[group].blocks_per_sheet + part;
  if (index < 0 || index >= static_cast<int>(sheets.blocks.size())) return std::nullopt;
  return sheets.blocks[index];
}

absl::Status ShadowWorker::ChangeSheets(const StepPlan& plan, int index, int end, Row* row) {
  row->sheets.resize(groups_.size() - 1);
  int last_group = 0;
  for (const SheetChange& change : plan.sheet_changes) {
    if (change.slice != index) continue;
    if (change.group <= last_group || change.group >= static_cast<int>(groups_.size())) {
      return Broken("a change of group ", change.group, " after group ", last_group, " of ", groups_.size());
    }
    last_group = change.group;
    const int width = groups_[change.group].blocks_per_sheet;
    if (change.num_sheets < 1 || static_cast<int>(change.blocks.size()) != change.num_sheets * width) {
      return Broken(change.blocks.size(), " blocks for ", change.num_sheets, " sheets of ", width);
    }
    RowTable::Sheets& sheets = row->sheets[change.group - 1];
    const int num_kept = (change.first_sheet - sheets.first_sheet) * width;
    if (num_kept < 0 || num_kept > static_cast<int>(sheets.blocks.size())) {
      sheets = {change.first_sheet, {}};
    } else {
      sheets.blocks.resize(num_kept);
    }
    sheets.blocks.insert(sheets.blocks.end(), change.blocks.begin(), change.blocks.end());
  }
  int column = 1;
  for (int group = 1; group < static_cast<int>(groups_.size()); ++group) {
    for (int part = 0; part < groups_[group].blocks_per_sheet; ++part, ++column) {
      for (int position = plan.slices[index].first_position; position < end; ++position) {
        const auto block = SheetBlock(*row, group, position / block_size_, part);
        if (!block.has_value()) return Broken("no sheet of group ", group, " for position ", position);
        QUIRE_RETURN_IF_ERROR(StoreToken(plan.step, *row, position, column, *block));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ShadowWorker::StoreToken(StepId step, const Row& row, int position, int column, BlockId block) {
  const int64_t slot = int64_t{Value(block)} * block_size_ + position % block_size_;
  if (slot >= static_cast<int64_t>(slots_.size())) return Broken("slot ", slot, " of ", slots_.size());
  if (written_in_[slot] == step) return Broken("slot ", slot, " is stored twice in step ", Value(step));
  written_in_[slot] = step;
  slots_[slot] = {.token = row.tokens[position],
                  .prefix_hash = row.prefix_hashes[position],
                  .before = position == 0 ? kEmptyPrefix : row.prefix_hashes[position - 1],
                  .root = row.start.cache_root,
                  .column = column};
  return absl::OkStatus();
}

absl::Status ShadowWorker::Store(const StepPlan& plan, int index) {
  const StepId step = plan.step;
  const SequenceSlice& slice = plan.slices[index];
  if (Value(slice.row) >= rows_.size() || !rows_[Value(slice.row)].has_value()) {
    return Broken("row ", Value(slice.row), " was not started");
  }
  Row& row = *rows_[Value(slice.row)];
  if (row.last_step == step) return Broken("two slices of row ", Value(slice.row));
  row.last_step = step;
  if (slice.num_tokens == 0) {
    QUIRE_RETURN_IF_ERROR(CheckDraw(step, slice, row));
    row.num_stored = slice.first_position;
  }
  const bool goes_back = std::exchange(row.may_go_back, false) && slice.first_position < row.num_stored;
  if (row.num_stored >= 0 && slice.first_position != row.num_stored && !goes_back) {
    return Broken("slice from ", slice.first_position, ", the row has stored ", row.num_stored);
  }
  const bool pools_all = PoolsEarlierTokens(row.start.sampling.pooling);
  if (pools_all && (slice.first_position != std::max(row.num_stored, 0) || slice.num_tokens == 0)) {
    return Broken("slice of ", slice.num_tokens, " tokens from ", slice.first_position, " of a row that pools all of ",
                  "them, it has stored ", row.num_stored);
  }
  const int num_tokens = static_cast<int>(row.tokens.size());
  row.is_early = row.lacks_draw && slice.first_position == num_tokens && slice.num_tokens == 1 && slice.sample;
  if (row.is_early) early_sequences_.push_back(row.start.sequence);
  const int end = row.is_early ? num_tokens : slice.first_position + slice.num_tokens;
  if (end > num_tokens) return Broken("slice up to ", end, ", tokens ", num_tokens);
  if (slice.sample != (end == num_tokens)) return Broken("sample ", slice.sample, " at ", end, " of ", num_tokens);
  const int old_size = static_cast<int>(row.table.size());
  if (slice.first_changed_block > old_size || (slice.block_tail.empty() && slice.first_changed_block != old_size)) {
    return Broken("change from block ", slice.first_changed_block, ", the row's table has ", old_size);
  }
  row.table.resize(slice.first_changed_block);
  row.table.insert(row.table.end(), slice.block_tail.begin(), slice.block_tail.end());
  if (static_cast<int>(row.table.size()) * block_size_ < end) {
    return Broken("a table of ", row.table.size(), " blocks for ", end, " tokens");
  }
  for (int position = slice.first_position; position < end; ++position) {
    QUIRE_RETURN_IF_ERROR(StoreToken(step, row, position, /*column=*/0, row.table[position / block_size_]));
  }
  QUIRE_RETURN_IF_ERROR(ChangeSheets(plan, index, end, &row));
  row.num_stored = end;
  return absl::OkStatus();
}

// It draws what its parent has computed, or what was put off. A row that was swapped in comes with all its K and V.
absl::Status ShadowWorker::CheckDraw(StepId step, const SequenceSlice& slice, const Row& row) const {
  if (!row.parent.has_value()) {
    const bool is_computed = row.num_stored == slice.first_position || row.num_stored == -1;
    if (is_computed && (row.lacks_draw || row.num_stored == -1)) return absl::OkStatus();
    return Broken("row ", Value(slice.row), " draws again where nothing was put off");
  }
  const Row& parent = *rows_[Value(*row.parent)];
  if (parent.last_step == step && parent.num_stored == slice.first_position) return absl::OkStatus();
  return Broken("row ", Value(slice.row), " draws where no parent has computed");
}

absl::Status ShadowWorker::Read(const SequenceSlice& slice) const {
  const Row& row = *rows_[Value(slice.row)];
  for (int position = 0; position < row.num_stored; ++position) {
    const int64_t slot = SlotOf(row, position);
    const Slot expected = {row.tokens[position], row.prefix_hashes[position]};
    if (!slots_[slot].HasSameTokens(expected)) {
      return Broken("sequence ", Value(row.start.sequence), " reads token ", slots_[slot].token, " for position ",
                    position, " from slot ", slot, ", its own is ", expected.token);
    }
  }
  int column = 1;
  for (int group = 1; group < static_cast<int>(groups_.size()); ++group) {
    QUIRE_RETURN_IF_ERROR(ReadSheets(slice, row, group, column));
    column += groups_[group].blocks_per_sheet;
  }
  return absl::OkStatus();
}

// The first query sees window_tokens tokens, itself included. A repeated draw has one that is a token earlier.
absl::Status ShadowWorker::ReadSheets(const SequenceSlice& slice, const Row& row, int group, int first_column) const {
  const int window = groups_[group].window_tokens;
  const int first = window == 0 ? 0 : std::max(0, slice.first_position - window);
  for (int part = 0; part < groups_[group].blocks_per_sheet; ++part) {
    for (int position = first; position < row.num_stored; ++position) {
      const auto block = SheetBlock(row, group, position / block_size_, part);
      if (!block.has_value()) return Broken("no sheet of group ", group, " for position ", position);
      const Slot& slot = slots_[static_cast<size_t>(Value(*block)) * block_size_ + position % block_size_];
      Slot expected = {row.tokens[position], row.prefix_hashes[position]};
      expected.column = first_column + part;
      if (slot.HasSameTokens(expected)) continue;
      return Broken("sequence ", Value(row.start.sequence), " reads token ", slot.token, " of column ", slot.column,
                    " for position ", position, " of column ", expected.column, " from block ", Value(*block),
                    ", its own is ", expected.token);
    }
  }
  return absl::OkStatus();
}

void ShadowWorker::BeginSession() {
  last_step_ = StepId{0};
  std::fill(written_in_.begin(), written_in_.end(), StepId{0});
  for (std::optional<Row>& row : rows_) {
    if (!row.has_value()) continue;
    row->last_step = StepId{0};
    row->lacks_draw = false;
    row->may_go_back = true;
  }
}

bool ShadowWorker::HasRowOf(absl::string_view record, bool has_failed) const {
  return std::any_of(rows_.begin(), rows_.end(), [&](const std::optional<Row>& row) {
    return row.has_value() && row->has_failed == has_failed && row->start.record != nullptr &&
           *row->start.record == record;
  });
}

WorkerInventory ShadowWorker::MakeInventory() const {
  WorkerInventory inventory;
  inventory.last_step = last_step_;
  const auto root_index = [&](const CacheRoot& root) {
    const std::string name = NameOf(root);
    const auto it = std::find(inventory.roots.begin(), inventory.roots.end(), name);
    if (it == inventory.roots.end())
      return static_cast<int>((inventory.roots.push_back(name), inventory.roots.size()) - 1);
    return static_cast<int>(it - inventory.roots.begin());
  };
  for (uint32_t i = 0; i < rows_.size(); ++i) {
    if (!rows_[i].has_value() || rows_[i]->has_failed) continue;
    const Row& in = *rows_[i];
    WorkerInventory::Row& out = inventory.rows.emplace_back();
    out.row = RowId{i};
    out.sequence = in.start.sequence;
    out.sample_index = in.start.sample_index;
    out.prompt_length = in.start.prompt_length;
    out.tokens = in.tokens;
    out.num_computed = std::max(0, in.num_stored);
    out.blocks = in.table;
    out.record = RowRecordOf(in.start);
    out.num_logprobs = in.start.sampling.num_candidates > 0 ? -1 : in.start.sampling.num_logprobs;
    out.num_prompt_logprobs = in.start.sampling.num_prompt_logprobs;
    out.num_candidates = std::min(in.start.sampling.num_candidates, model_.vocab_size);
    if (in.start.record != nullptr) out.scores = in.start.scores;
    if (in.start.record != nullptr) out.prompt_scores = *in.prompt_scores;
    if (in.start.cache_root.has_value()) out.root = root_index(*in.start.cache_root);
  }
  // Parents before children: a block gets its label as soon as the content before it has one.
  std::map<std::pair<int, uint64_t>, int> full;  // The labels of full blocks, by root and hash.
  std::vector<bool> has_label(num_blocks_);
  for (bool has_new = true; has_new;) {
    has_new = false;
    for (int block = 0; block < num_blocks_; ++block) {
      const Slot* const slots = &slots_[static_cast<size_t>(block) * block_size_];
      if (has_label[block] || slots[0].token < 0 || !slots[0].root.has_value()) continue;
      if (std::any_of(slots, slots + block_size_, [](const Slot& slot) { return slot.is_poisoned; })) continue;
      const int root = root_index(*slots[0].root);
      const auto parent = full.find({root, slots[0].before});
      if (slots[0].before != kEmptyPrefix && parent == full.end()) continue;
      WorkerInventory::Label label;
      label.block = BlockId{static_cast<uint32_t>(block)};
      label.root = root;
      if (parent != full.end()) label.parent = parent->second;
      for (int i = 0; i < block_size_ && slots[i].root == slots[0].root; ++i) {
        if (i > 0 && slots[i].before != slots[i - 1].prefix_hash) break;
        label.tokens.push_back(slots[i].token);
      }
      has_label[block] = has_new = true;
      if (static_cast<int>(label.tokens.size()) == block_size_) {
        full.try_emplace({root, slots[block_size_ - 1].prefix_hash}, static_cast<int>(inventory.labels.size()));
      }
      inventory.labels.push_back(std::move(label));
    }
  }
  return inventory;
}

absl::Status ShadowWorker::CheckSlots(absl::Span<const BlockId> table, absl::Span<const TokenId> tokens) const {
  uint64_t prefix = kEmptyPrefix;
  for (size_t i = 0; i < tokens.size(); ++i) {
    prefix = ExtendPrefix(prefix, tokens[i]);
    const BlockId block = table[i / block_size_];
    const Slot& slot = slots_[static_cast<size_t>(Value(block)) * block_size_ + i % block_size_];
    if (slot.is_poisoned) return Broken("block ", Value(block), " holds what is of no use for position ", i);
    if (slot.HasSameTokens({tokens[i], prefix})) continue;
    return Broken("block ", Value(block), " holds token ", slot.token, " for position ", i, ", where ", tokens[i],
                  " is due or its prefix is another");
  }
  return absl::OkStatus();
}

SliceResult ShadowWorker::Fail(const SequenceSlice& slice, int first_position) {
  Row& row = *rows_[Value(slice.row)];
  row.has_failed = true;
  const int end = std::min(slice.first_position + slice.num_tokens, row.num_stored);
  for (int position = first_position; position < end; ++position) {
    slots_[SlotOf(row, position)].is_poisoned = true;
  }
  SliceResult result;
  result.failure = {row.start.sequence, SequenceFailure::Reason::kLogitsNotFinite, "the logits are not finite"};
  return result;
}

SliceResult ShadowWorker::Finish(const SequenceSlice& slice) {
  Row& row = *rows_[Value(slice.row)];
  SliceResult result;
  if (row.start.sampling.num_prompt_logprobs >= 0) {
    for (int i = slice.first_position; i < slice.first_position + slice.num_tokens; ++i) {
      if (i + 1 >= row.start.prompt_length) break;
      result.prompt_logprobs.push_back(ScoreToken(row.prefix_hashes[i], row.tokens[i + 1]));
      if (static_cast<int>(row.prompt_scores->size()) == i) row.prompt_scores->push_back(result.prompt_logprobs.back());
    }
  }
  const Pooling pooling = row.start.sampling.pooling;
  if (pooling != Pooling::kNone) {
    for (int i = slice.first_position; i < row.num_stored; ++i) {
      const bool is_last = i + 1 == static_cast<int>(row.tokens.size());
      if (IsPooled(pooling, i, is_last)) row.embedding.Add(row.prefix_hashes[i]);
    }
    // A swapped row may come back with all tokens stored.
    if (slice.num_tokens == 0) row.embedding.Add(row.prefix_hashes.back());
    result.sampled = slice.sample;
    if (slice.sample) result.embedding = row.embedding.Values();
    return result;
  }
  row.lacks_draw = slice.sample && (row.is_early || IsPostponed(slice));
  result.is_postponed = row.lacks_draw;
  if (slice.sample && !row.lacks_draw) {
    result.sampled = true;
    if (row.start.sampling.num_candidates > 0) {
      result.candidates = model_.Candidates(row.prefix_hashes.back(), row.start.sampling.num_candidates);
      return result;
    }
    result.token.token = model_.Sample(row.prefix_hashes.back(), row.start.sampling.seed + row.start.sample_index);
    if (row.start.sampling.num_logprobs >= 0) {
      result.token = ScoreToken(row.prefix_hashes.back(), result.token.token);
      const int index = static_cast<int>(row.tokens.size()) - row.start.prompt_length;
      if (static_cast<int>(row.start.scores.size()) == index) row.start.scores.push_back(result.token);
    }
    row.Append(result.token.token);
  }
  return result;
}

bool ShadowWorker::IsPostponed(const SequenceSlice& slice) const {
  return postpones_ > 1 && ExtendPrefix(Value(last_step_), static_cast<TokenId>(Value(slice.row))) % postpones_ == 0;
}

int64_t ShadowWorker::SlotOf(const Row& row, int position) const {
  return static_cast<int64_t>(Value(row.table[position / block_size_])) * block_size_ + position % block_size_;
}

}  // namespace quire
