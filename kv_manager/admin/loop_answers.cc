// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/loop_answers.h"

#include <algorithm>
#include <memory>

#include "absl/types/span.h"
#include "kv_manager/blocks/block_audit.h"
#include "kv_manager/blocks/block_state.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/scheduler.h"
#include "scheduler/sequence.h"
#include "scheduler/sequence_group.h"

namespace quire {
namespace {

constexpr int kMaxOwners = 100;

v1::BlockState EncodeState(BlockState state) {
  static_assert(static_cast<int>(BlockState::kFree) == v1::BLOCK_STATE_FREE);
  static_assert(static_cast<int>(BlockState::kEvictable) == v1::BLOCK_STATE_EVICTABLE);
  static_assert(static_cast<int>(BlockState::kUsed) == v1::BLOCK_STATE_USED);
  static_assert(static_cast<int>(BlockState::kShared) == v1::BLOCK_STATE_SHARED);
  static_assert(static_cast<int>(BlockState::kPinned) == v1::BLOCK_STATE_PINNED);
  return static_cast<v1::BlockState>(state);
}

// A set of the blocks of a pool.
class BlockSet {
 public:
  explicit BlockSet(int num_blocks) : has_(num_blocks, false) {}

  bool Contains(BlockId block) const { return has_[Value(block)]; }
  // Returns false when the set had the block already.
  bool Add(BlockId block) {
    if (Contains(block)) return false;
    has_[Value(block)] = true;
    return true;
  }
  void Remove(BlockId block) { has_[Value(block)] = false; }

 private:
  std::vector<bool> has_;
};

absl::Span<const BlockId> TableOf(const SequenceGroup& group, const Sequence& sequence, const LoopView& loop) {
  return group.is_swapped() ? loop.blocks->HostTable(sequence.id()) : loop.blocks->Table(sequence.id());
}

v1::RequestState StateOf(const SequenceGroup& group) {
  if (group.is_running()) return v1::REQUEST_STATE_RUNNING;
  return group.is_swapped() ? v1::REQUEST_STATE_SWAPPED : v1::REQUEST_STATE_WAITING;
}

// Returns the number of samples or beams that have not ended. Those that have yet to be forked count.
int NumSamples(const SequenceGroup& group) {
  const bool has_beams = group.request().beam.has_value();
  if (has_beams && !group.has_begun()) return group.request().beam->width;
  return group.num_sequences() + group.num_to_fork();
}

// `seen` is scratch space for the blocks of the pool and of the host tier. It is empty before and after.
void Summarize(const SequenceGroup& group, const LoopView& loop, BlockSet* seen, v1::RequestSummary* out) {
  const Request& request = group.request();
  out->set_worker(loop.address);
  out->set_state(StateOf(group));
  out->set_age_ms(std::max<int64_t>(loop.now_us - request.arrival_us, 0) / 1000);
  out->set_prompt_tokens(static_cast<uint32_t>(request.prompt.size()));
  out->set_cached_prompt_tokens(group.progress().num_cached_tokens);
  out->set_num_sequences(NumSamples(group));
  out->set_priority(request.priority);
  out->set_tenant(request.tenant);
  uint64_t num_generated = 0;
  int num_blocks = 0;
  int num_shared = 0;
  for (const auto& sequence : group.sequences()) {
    num_generated += sequence->num_generated_tokens();
    for (const BlockId block : TableOf(group, *sequence, loop)) {
      if (!seen->Add(block)) continue;
      ++num_blocks;
      num_shared += !group.is_swapped() && loop.blocks->IsHeldByMany(block);
    }
  }
  for (const auto& sequence : group.sequences()) {
    for (const BlockId block : TableOf(group, *sequence, loop)) seen->Remove(block);
  }
  out->set_generated_tokens(num_generated);
  out->set_blocks(num_blocks);
  out->set_shared_blocks(num_shared);
}

BlockSet RoomForAll(const LoopView& loop) {
  return BlockSet(std::max(loop.blocks->num_blocks(), loop.blocks->counts().host_total));
}

// The other requests that hold blocks of these tables.
std::vector<std::pair<RequestId, int>> FindSharers(const std::vector<std::vector<BlockId>>& tables, RequestId request,
                                                   const LoopView& loop) {
  BlockSet own = RoomForAll(loop);
  for (const auto& table : tables) {
    for (const BlockId block : table) own.Add(block);
  }
  std::vector<std::pair<RequestId, int>> sharers;
  std::vector<BlockId> common;
  loop.scheduler->ForEachGroup([&](const SequenceGroup& group) {
    if (group.id() == request || group.is_swapped()) return;
    common.clear();
    for (const auto& sequence : group.sequences()) {
      for (const BlockId block : loop.blocks->Table(sequence->id())) {
        if (own.Contains(block)) common.push_back(block);
      }
    }
    if (common.empty()) return;
    std::sort(common.begin(), common.end());
    sharers.emplace_back(group.id(), std::unique(common.begin(), common.end()) - common.begin());
  });
  return sharers;
}

v1::AuditDifference::Kind EncodeKind(CountDifference::Kind kind) {
  switch (kind) {
    case CountDifference::Kind::kReferences:
      return v1::AuditDifference::KIND_REFERENCES;
    case CountDifference::Kind::kCopies:
      return v1::AuditDifference::KIND_COPIES;
    case CountDifference::Kind::kHostReferences:
      return v1::AuditDifference::KIND_HOST_REFERENCES;
    case CountDifference::Kind::kCached:
      return v1::AuditDifference::KIND_CACHED;
  }
  return v1::AuditDifference::KIND_UNSPECIFIED;
}

v1::RowDifference::Kind EncodeKind(RowDifference::Kind kind) {
  switch (kind) {
    case RowDifference::Kind::kSequence:
      return v1::RowDifference::KIND_SEQUENCE;
    case RowDifference::Kind::kComputedTokens:
      return v1::RowDifference::KIND_COMPUTED_TOKENS;
    case RowDifference::Kind::kTableLength:
      return v1::RowDifference::KIND_TABLE_LENGTH;
    case RowDifference::Kind::kBlock:
      return v1::RowDifference::KIND_BLOCK;
  }
  return v1::RowDifference::KIND_UNSPECIFIED;
}

}  // namespace

void CopyBlocks(const LoopView& loop, PoolSnapshot* out) {
  out->is_ready = loop.blocks != nullptr && loop.link.is_ready();
  if (!out->is_ready) return;
  out->epoch = loop.link.epoch();
  out->step = loop.link.num_steps() + loop.link.num_plans_in_flight();
  out->block_size = loop.blocks->block_size();
  loop.blocks->CopyStates(&out->states);
}

void ListRequests(const LoopView& loop, int max_requests, ListedRequests* out) {
  if (loop.scheduler == nullptr) return;
  BlockSet seen = RoomForAll(loop);
  int num_left = max_requests;
  loop.scheduler->ForEachGroup([&](const SequenceGroup& group) {
    ++out->num_requests;
    if (num_left == 0) return;
    --num_left;
    out->requests.emplace_back(group.id(), v1::RequestSummary());
    Summarize(group, loop, &seen, &out->requests.back().second);
  });
}

bool DescribeRequest(const LoopView& loop, RequestId request, DescribedRequest* out) {
  if (loop.scheduler == nullptr) return false;
  const SequenceGroup* const group = loop.scheduler->FindGroup(request);
  if (group == nullptr) return false;
  v1::DescribeRequestResponse& description = out->description;
  BlockSet seen = RoomForAll(loop);
  Summarize(*group, loop, &seen, description.mutable_summary());
  description.set_epoch(loop.link.epoch());
  description.set_step(loop.link.num_steps() + loop.link.num_plans_in_flight());
  description.set_block_size(loop.blocks->block_size());
  for (const auto& sequence : group->sequences()) {
    v1::SequenceDescription* const described = description.add_sequences();
    described->set_sample_index(sequence->sample_index());
    described->set_num_tokens(sequence->num_known_tokens());
    described->set_num_computed_tokens(sequence->num_computed_tokens());
    const absl::Span<const BlockId> table = TableOf(*group, *sequence, loop);
    out->tables.emplace_back(table.begin(), table.end());
    for (const BlockId block : table) {
      described->add_blocks(Value(block));
      if (!group->is_swapped()) described->add_references(loop.blocks->num_references(block));
    }
  }
  if (description.summary().shared_blocks() > 0) out->sharers = FindSharers(out->tables, request, loop);
  return true;
}

void DescribeBlock(const LoopView& loop, BlockId block, DescribedBlock* out) {
  v1::DescribeBlockResponse& description = out->description;
  SetMoment(loop, &description);
  description.set_block(Value(block));
  description.set_block_size(loop.blocks->block_size());
  const BlockHolders holders = loop.blocks->HoldersOf(block);
  description.set_state(EncodeState(holders.state));
  description.set_references(holders.num_references);
  description.set_num_pins(holders.num_pins);
  description.set_num_copies(holders.num_copies);
  description.set_is_cached(holders.is_cached);
  description.set_prefix_depth(holders.depth);
  description.set_prefix_hash(holders.prefix);
  description.set_age_steps(holders.age_steps);
  int num_owners = 0;
  loop.scheduler->ForEachGroup([&](const SequenceGroup& group) {
    if (group.is_swapped()) return;
    for (const auto& sequence : group.sequences()) {
      const absl::Span<const BlockId> table = loop.blocks->Table(sequence->id());
      const auto it = std::find(table.begin(), table.end(), block);
      if (it == table.end()) continue;
      if (++num_owners > kMaxOwners) continue;
      v1::BlockOwner* const owner = description.add_owners();
      owner->set_sample_index(sequence->sample_index());
      owner->set_table_index(static_cast<uint32_t>(it - table.begin()));
      out->owners.push_back(group.id());
    }
  });
  description.set_num_owners(num_owners);
}

v1::WorkerAudit AuditBlocks(const LoopView& loop, bool is_repair_wanted) {
  v1::WorkerAudit out;
  SetMoment(loop, &out);
  if (loop.blocks == nullptr) return out;
  const BlockAudit audit = is_repair_wanted ? loop.blocks->Repair() : loop.blocks->Audit();
  out.set_num_blocks(audit.num_blocks);
  out.set_num_references(audit.num_references);
  out.set_num_differences(audit.num_differences);
  for (const CountDifference& difference : audit.differences) {
    v1::AuditDifference* const told = out.add_differences();
    told->set_kind(EncodeKind(difference.kind));
    told->set_block(Value(difference.block));
    told->set_counted(difference.counted);
    told->set_recomputed(difference.recomputed);
  }
  out.set_contradiction(std::string(audit.contradiction.message()));
  out.set_is_repaired(is_repair_wanted && !audit.is_clean() && loop.blocks->Audit().is_clean());
  return out;
}

void AddTableAudit(const TableAudit& tables, absl::FunctionRef<std::string(RequestId)> name_of,
                   v1::WorkerAudit* audit) {
  audit->set_num_rows(tables.num_rows);
  audit->set_num_row_differences(tables.num_differences);
  audit->set_rows_not_compared(std::string(tables.not_compared.message()));
  for (const RowDifference& difference : tables.differences) {
    v1::RowDifference* const told = audit->add_row_differences();
    told->set_kind(EncodeKind(difference.kind));
    told->set_row(Value(difference.row));
    told->set_request_id(name_of(difference.request));
    told->set_index(difference.index);
    told->set_expected(difference.expected);
    told->set_found(difference.found);
  }
  if (tables.num_differences == 0) return;
  const bool are_counts_right = audit->num_differences() == 0 && audit->contradiction().empty();
  audit->set_is_repaired(tables.is_repaired && (are_counts_right || audit->is_repaired()));
}

}  // namespace quire
