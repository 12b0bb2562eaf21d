// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/block_pool.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace quire {

BlockRef::~BlockRef() {
  if (pool_ != nullptr) pool_->DropReference(id_);
}

BlockRef BlockRef::Share() const {
  QUIRE_CHECK(pool_ != nullptr) << "a reference to nothing cannot be shared";
  pool_->AddReference(id_);
  return BlockRef(pool_, id_);
}

BlockPool::BlockPool(int num_blocks)
    : states_(num_blocks), shown_(num_blocks, BlockState::kFree), num_free_(num_blocks) {
  for (int i = num_blocks - 1; i >= 0; --i) {
    states_[i].next_free = first_free_;
    first_free_ = i;
  }
}

BlockPool::~BlockPool() {
  QUIRE_CHECK_EQ(num_free_, num_blocks());
}

BlockRef BlockPool::Take() {
  if (first_free_ == kNone) return BlockRef();
  const BlockId block{first_free_};
  State& state = states_[first_free_];
  first_free_ = state.next_free;
  state.num_owners = 1;
  shown_[Value(block)] = BlockState::kUsed;
  --num_free_;
  return BlockRef(this, block);
}

std::vector<BlockRef> BlockPool::TakeThese(absl::Span<const BlockId> blocks) {
  std::vector<BlockRef> references;
  references.reserve(blocks.size());
  for (const BlockId block : blocks) {
    State& state = states_[Value(block)];
    QUIRE_CHECK_EQ(state.ref_count(), 0) << block;
    state.num_owners = 1;
    shown_[Value(block)] = BlockState::kUsed;
    references.push_back(BlockRef(this, block));
  }
  RebuildFreeList();
  return references;
}

void BlockPool::RebuildFreeList() {
  num_free_ = 0;
  first_free_ = kNone;
  for (int i = num_blocks() - 1; i >= 0; --i) {
    if (states_[i].ref_count() > 0) continue;
    states_[i].next_free = first_free_;
    first_free_ = i;
    ++num_free_;
  }
}

void BlockPool::AddReference(BlockId block) {
  const int num_owners = ++states_[Value(block)].num_owners;
  if (num_owners > 2) return;
  if (num_owners == 2) {
    ++num_shared_;
    shown_[Value(block)] = BlockState::kShared;
  } else {
    --num_evictable_;  // Until now only the cache held the block.
    shown_[Value(block)] = BlockState::kUsed;
  }
}

void BlockPool::DropReference(BlockId block) {
  State& state = states_[Value(block)];
  QUIRE_CHECK_GT(state.num_owners, 0) << block << " is free or its cache has not cleared the mark";
  if (--state.num_owners == 1) {
    --num_shared_;
    shown_[Value(block)] = BlockState::kUsed;
  }
  if (state.num_owners > 0) return;
  if (state.is_cached) {
    OnEvictable(block);
    return;
  }
  shown_[Value(block)] = BlockState::kFree;
  state.next_free = first_free_;
  first_free_ = Value(block);
  ++num_free_;
}

void BlockPool::OnEvictable(BlockId block) {
  State& state = states_[Value(block)];
  ++num_evictable_;
  shown_[Value(block)] = BlockState::kEvictable;
  if (state.is_newly_evictable) return;
  state.is_newly_evictable = true;
  newly_evictable_.push_back(block);
}

void BlockPool::SetCached(BlockId block, bool is_cached) {
  State& state = states_[Value(block)];
  QUIRE_CHECK_GT(state.ref_count(), 0) << block << " is free";
  QUIRE_CHECK_NE(state.is_cached != 0, is_cached) << block;
  state.is_cached = is_cached;
  if (!is_cached) {
    AddReference(block);
    return;
  }
  if (--state.num_owners == 1) {
    --num_shared_;
    shown_[Value(block)] = BlockState::kUsed;
  }
  if (state.num_owners == 0) OnEvictable(block);
}

void BlockPool::TakeNewlyEvictable(std::vector<BlockId>* blocks) {
  blocks->clear();
  blocks->swap(newly_evictable_);
  for (BlockId block : *blocks) states_[Value(block)].is_newly_evictable = false;
}

BlockState BlockPool::StateOf(const State& state) {
  if (state.num_owners > 0) return state.num_owners > 1 ? BlockState::kShared : BlockState::kUsed;
  return state.is_cached ? BlockState::kEvictable : BlockState::kFree;
}

void BlockPool::Repair(absl::Span<const Recount> blocks) {
  QUIRE_CHECK_EQ(blocks.size(), states_.size());
  num_evictable_ = num_shared_ = 0;
  for (int i = num_blocks() - 1; i >= 0; --i) {
    State& state = states_[i];
    state.num_owners = blocks[i].num_owners;
    state.is_cached = blocks[i].is_cached;
    if (state.num_owners > 1) ++num_shared_;
    if (state.num_owners == 0 && state.is_cached) OnEvictable(BlockId{static_cast<uint32_t>(i)});
    shown_[i] = StateOf(state);
  }
  RebuildFreeList();
}

absl::Status BlockPool::CheckIntegrity() const {
  int listed = 0;
  for (uint32_t block = first_free_; block != kNone; block = states_[block].next_free) {
    if (block >= states_.size()) {
      return absl::InternalError(absl::StrCat("free list names block ", block, " of ", num_blocks()));
    }
    if (states_[block].ref_count() != 0) {
      return absl::InternalError(
          absl::StrCat("block ", block, " is on the free list with ", states_[block].ref_count(), " references"));
    }
    if (++listed > num_blocks()) return absl::InternalError("the free list is a circle");
  }
  for (int i = 0; i < num_blocks(); ++i) {
    if (shown_[i] == StateOf(states_[i])) continue;
    return absl::InternalError(absl::StrCat("block ", i, " is shown in state ", static_cast<int>(shown_[i]),
                                            " and is in ", static_cast<int>(StateOf(states_[i]))));
  }
  int unreferenced = 0;
  int evictable = 0;
  int shared = 0;
  for (const State& state : states_) {
    if (state.ref_count() == 0) ++unreferenced;
    if (state.is_cached && state.num_owners == 0) ++evictable;
    if (state.num_owners > 1) ++shared;
  }
  if (listed != unreferenced || listed != num_free_ || evictable != num_evictable_ || shared != num_shared_) {
    return absl::InternalError(absl::StrCat("free list ", listed, ", unreferenced ", unreferenced, ", counted free ",
                                            num_free_, "; evictable ", evictable, ", counted evictable ",
                                            num_evictable_, "; shared ", shared, ", counted shared ", num_shared_));
  }
  return absl::OkStatus();
}

}  // namespace quire
