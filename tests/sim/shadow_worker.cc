#include "tests/sim/shadow_worker.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}

}  // namespace

ShadowWorker::ShadowWorker(const ShadowModel& model, int num_blocks, int block_size, int num_rows, int num_host_blocks)
    : model_(model),
      num_blocks_(num_blocks),
      block_size_(block_size),
      rows_(num_rows),
      slots_(static_cast<size_t>(num_blocks) * block_size),
      host_slots_(static_cast<size_t>(num_host_blocks) * block_size),
      written_in_(slots_.size(), StepId{0}) {}

absl::StatusOr<StepResult> ShadowWorker::Execute(const StepPlan& plan) {
  if (Value(plan.step) != Value(last_step_) + 1) {
    return Broken("step ", Value(plan.step), " follows step ", Value(last_step_));
  }
  last_step_ = plan.step;
  if (plan.empty()) return Broken("step ", Value(plan.step), " is empty");
  QUIRE_RETURN_IF_ERROR(Swap(plan));
  QUIRE_RETURN_IF_ERROR(Copy(plan.copies));
  for (std::optional<Row>& row : rows_) {
    if (row.has_value()) row->parent.reset();
  }
  for (const SequenceStart& start : plan.starts) QUIRE_RETURN_IF_ERROR(Start(start));
  for (const SequenceFork& fork : plan.forks) QUIRE_RETURN_IF_ERROR(Fork(fork));
  for (const TokenAppend& append : plan.appends) QUIRE_RETURN_IF_ERROR(Append(append));
  // Every store of the step happens before any read, as if the rows ran in the least convenient order.
  for (const SequenceSlice& slice : plan.slices) QUIRE_RETURN_IF_ERROR(Store(plan.step, slice));
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
    tables.push_back({row.start.sequence, row.num_stored, row.table});
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
      slots_[static_cast<size_t>(Value(copy.destination)) * block_size_ + i] = slots_[source];
    }
  }
  return absl::OkStatus();
}

absl::Status ShadowWorker::Store(StepId step, const SequenceSlice& slice) {
  if (Value(slice.row) >= rows_.size() || !rows_[Value(slice.row)].has_value()) {
    return Broken("row ", Value(slice.row), " was not started");
  }
  Row& row = *rows_[Value(slice.row)];
  if (row.last_step == step) return Broken("two slices of row ", Value(slice.row));
  row.last_step = step;
  if (slice.num_tokens == 0) {
    const Row* parent = row.parent.has_value() ? &*rows_[Value(*row.parent)] : nullptr;
    if (parent == nullptr || parent->last_step != step || parent->num_stored != slice.first_position) {
      return Broken("row ", Value(slice.row), " draws where no parent has computed");
    }
    row.num_stored = slice.first_position;
  }
  if (row.num_stored >= 0 && slice.first_position != row.num_stored) {
    return Broken("slice from ", slice.first_position, ", the row has stored ", row.num_stored);
  }
  const int end = slice.first_position + slice.num_tokens;
  const int num_tokens = static_cast<int>(row.tokens.size());
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
    const int64_t slot = SlotOf(row, position);
    if (slot >= static_cast<int64_t>(slots_.size())) return Broken("slot ", slot, " of ", slots_.size());
    if (written_in_[slot] == step) return Broken("slot ", slot, " is stored twice in step ", Value(step));
    written_in_[slot] = step;
    slots_[slot] = {row.tokens[position], row.prefix_hashes[position]};
  }
  row.num_stored = end;
  return absl::OkStatus();
}

absl::Status ShadowWorker::Read(const SequenceSlice& slice) const {
  const Row& row = *rows_[Value(slice.row)];
  for (int position = 0; position < row.num_stored; ++position) {
    const int64_t slot = SlotOf(row, position);
    const Slot expected = {row.tokens[position], row.prefix_hashes[position]};
    if (slots_[slot] != expected) {
      return Broken("sequence ", Value(row.start.sequence), " reads token ", slots_[slot].token, " for position ",
                    position, " from slot ", slot, ", its own is ", expected.token);
    }
  }
  return absl::OkStatus();
}

absl::Status ShadowWorker::CheckSlots(absl::Span<const BlockId> table, absl::Span<const TokenId> tokens) const {
  uint64_t prefix = kEmptyPrefix;
  for (size_t i = 0; i < tokens.size(); ++i) {
    prefix = ExtendPrefix(prefix, tokens[i]);
    const BlockId block = table[i / block_size_];
    const Slot& slot = slots_[static_cast<size_t>(Value(block)) * block_size_ + i % block_size_];
    if (slot == Slot{tokens[i], prefix}) continue;
    return Broken("block ", Value(block), " holds token ", slot.token, " for position ", i, ", where ", tokens[i],
                  " is due or its prefix is another");
  }
  return absl::OkStatus();
}

SliceResult ShadowWorker::Finish(const SequenceSlice& slice) {
  Row& row = *rows_[Value(slice.row)];
  SliceResult result;
  if (row.start.sampling.num_prompt_logprobs >= 0) {
    for (int i = slice.first_position; i < slice.first_position + slice.num_tokens; ++i) {
      if (i + 1 >= row.start.prompt_length) break;
      result.prompt_logprobs.push_back(ScorePromptToken(row.prefix_hashes[i], row.tokens[i + 1]));
    }
  }
  if (slice.sample) {
    result.sampled = true;
    if (row.start.sampling.num_candidates > 0) {
      result.candidates = model_.Candidates(row.prefix_hashes.back(), row.start.sampling.num_candidates);
      return result;
    }
    result.token.token = model_.Sample(row.prefix_hashes.back(), row.start.sampling.seed + row.start.sample_index);
    row.Append(result.token.token);
  }
  return result;
}

int64_t ShadowWorker::SlotOf(const Row& row, int position) const {
  return static_cast<int64_t>(Value(row.table[position / block_size_])) * block_size_ + position % block_size_;
}

}  // namespace quire
