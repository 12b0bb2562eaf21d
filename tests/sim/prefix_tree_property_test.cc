// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kv_manager/blocks/block_pool.h"
#include "kv_manager/blocks/prefix_pins.h"
#include "kv_manager/blocks/prefix_promises.h"
#include "kv_manager/blocks/prefix_tree.h"
#include "tests/random.h"

namespace quire {
namespace {

using Tokens = std::vector<TokenId>;

bool StartsWith(const Tokens& tokens, const Tokens& prefix) {
  return tokens.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

int NumEqual(const Tokens& a, const Tokens& b) {
  return static_cast<int>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// A reference for the cache, which scans a list.
struct Cached {
  std::string salt;
  Tokens prefix;  // Up to and including the block.
  BlockId block;
  uint64_t step;
  int number;
};

// Random sequences that hit the cache, compute, fork and end, with partial blocks held by copies, with pins and
// promises, over few tokens and few blocks. Every answer is compared with the answer of the list.
class PrefixSim {
 public:
  explicit PrefixSim(uint64_t seed)
      : random_(seed),
        block_size_(random_.Between(1, 4)),
        num_letters_(random_.Between(1, 3)),
        max_pinned_(random_.Between(0, 6)),
        pool_(random_.Between(1, 24)),
        tree_(block_size_, &pool_),
        pins_(&tree_, max_pinned_),
        promises_(block_size_) {}

  void Run() {
    for (int i = 0; i < 120 && !::testing::Test::HasFailure(); ++i) {
      if (random_.OneIn(3)) ++step_;
      Act();
      Check();
    }
    sequences_.clear();
    copies_.clear();
    pins_.Clear();
    pinned_.clear();
    while (Evict()) Check();
    EXPECT_EQ(pool_.num_free(), pool_.num_blocks());
  }

  int num_evictions() const { return num_evictions_; }
  int num_partial_hits() const { return num_partial_hits_; }
  int num_orphans() const { return num_orphans_; }
  int num_pins() const { return num_pins_; }
  int num_promised() const { return num_promised_; }

 private:
  struct Sequence {
    std::string salt;
    Tokens tokens;
    std::vector<BlockRef> blocks;
  };

  struct Pin {
    std::vector<BlockId> blocks;
    int64_t expires_us;
  };

  void Act() {
    switch (random_.Between(0, 11)) {
      case 0:
      case 1:
        return Start();
      case 2:
      case 3:
      case 4:
        return Grow();
      case 5:
        return Fork();
      case 6:
        return Free();
      case 7:
        Evict();
        return;
      case 8:
        return random_.OneIn(2) ? PinSome() : UnpinSome();
      case 9:
        return Copy();
      case 10:
        return Promise();
      default:
        if (random_.OneIn(20)) Clear();
    }
  }

  // A prompt takes the blocks of its hit.
  void Start() {
    const Tokens tokens = SomeTokens();
    Sequence sequence{SomeSalt(), {}, {}};
    const PrefixTree::Hit hit = tree_.Find(sequence.salt, tokens, static_cast<int>(tokens.size()));
    const int num_evictable = tree_.num_evictable();
    for (BlockId block : hit.blocks) sequence.blocks.push_back(tree_.Share(block));
    std::optional<BlockRef> source;
    if (hit.partial_block) source = tree_.Share(*hit.partial_block);
    EXPECT_EQ(tree_.num_evictable(), num_evictable - hit.num_evictable);
    sequence.tokens.assign(tokens.begin(), tokens.begin() + static_cast<int>(hit.blocks.size()) * block_size_);
    sequences_.push_back(std::move(sequence));
  }

  void Grow() {
    if (sequences_.empty()) return;
    Sequence& sequence = AnySequence();
    BlockRef block = pool_.Take();
    if (!block && Evict()) block = pool_.Take();
    if (!block) return;
    Tokens tokens;
    for (int i = 0; i < block_size_; ++i) tokens.push_back(SomeToken());
    std::optional<BlockId> parent;
    if (!sequence.blocks.empty()) parent = sequence.blocks.back().id();
    const BlockId cached = tree_.Insert(sequence.salt, parent, tokens, block, StepId{step_});
    sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
    const Cached* equal = Lookup(sequence.salt, sequence.tokens);
    if (equal == nullptr) {
      EXPECT_EQ(cached, block.id());
      list_.push_back({sequence.salt, sequence.tokens, cached, 0, ++num_inserted_});
    } else {
      EXPECT_EQ(cached, equal->block);
    }
    sequence.blocks.push_back(cached == block.id() ? std::move(block) : tree_.Share(cached));
    Use(sequence);
  }

  void Fork() {
    if (sequences_.empty()) return;
    const Sequence& parent = AnySequence();
    Sequence child{parent.salt, parent.tokens, {}};
    for (const BlockRef& block : parent.blocks) child.blocks.push_back(block.Share());
    sequences_.push_back(std::move(child));
  }

  // Holds the source of a copy for some time, perhaps longer than any sequence holds the blocks before it.
  void Copy() {
    if (copies_.size() > 3 || list_.empty()) {
      copies_.clear();
    } else {
      copies_.push_back(tree_.Share(list_[random_.Between(0, static_cast<int>(list_.size()) - 1)].block));
    }
  }

  void Free() {
    if (sequences_.empty()) return;
    const int index = random_.Between(0, static_cast<int>(sequences_.size()) - 1);
    Sequence& sequence = sequences_[index];
    if (!sequence.blocks.empty() && random_.OneIn(2)) {
      tree_.Touch(sequence.blocks.back().id(), StepId{step_});
      Use(sequence);
    }
    sequences_.erase(sequences_.begin() + index);
  }

  bool Evict() {
    const Cached* next = nullptr;
    for (const Cached& cached : list_) {
      if (NumOwners(cached.block) > 0) continue;
      if (next == nullptr || IsEvictedBefore(cached, *next)) next = &cached;
    }
    const std::optional<BlockId> evicted = tree_.EvictOne();
    EXPECT_EQ(evicted.has_value(), next != nullptr);
    if (next == nullptr || !evicted) return false;
    EXPECT_EQ(*evicted, next->block);
    EXPECT_EQ(pool_.ref_count(*evicted), 0);
    ++num_evictions_;
    const Cached gone = *next;
    num_orphans_ +=
        static_cast<int>(std::erase_if(
            list_,
            [&](const Cached& cached) { return cached.salt == gone.salt && StartsWith(cached.prefix, gone.prefix); })) -
        1;
    return true;
  }

  void PinSome() {
    const std::string salt = SomeSalt();
    const Tokens tokens = SomeTokens();
    const int64_t expires_us = now_us_ + random_.Between(0, 20);
    std::vector<BlockId> blocks;
    for (size_t end = block_size_; end <= tokens.size(); end += block_size_) {
      const Cached* cached = Lookup(salt, Tokens(tokens.begin(), tokens.begin() + end));
      if (cached == nullptr) break;
      blocks.push_back(cached->block);
    }
    std::map<BlockId, int> pinned = PinCounts();
    for (BlockId block : blocks) ++pinned[block];
    const bool is_too_many =
        static_cast<int>(pinned.size()) > max_pinned_ ||
        (!pinned_.contains({salt, tokens}) && !blocks.empty() && static_cast<int>(pinned_.size()) >= max_pinned_);
    const absl::StatusOr<int> result = pins_.Pin(salt, tokens, expires_us);
    if (!blocks.empty() && is_too_many) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted);
      return;
    }
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(*result, static_cast<int>(blocks.size()));
    if (blocks.empty()) return;
    pinned_[{salt, tokens}] = {blocks, expires_us};
    ++num_pins_;
  }

  void UnpinSome() {
    if (random_.OneIn(2)) {
      now_us_ += random_.Between(0, 10);
      pins_.Expire(now_us_);
      std::erase_if(pinned_, [&](const auto& pin) { return pin.second.expires_us <= now_us_; });
      return;
    }
    std::pair<std::string, Tokens> key = {SomeSalt(), SomeTokens()};
    if (!pinned_.empty() && random_.OneIn(2)) key = pinned_.begin()->first;
    EXPECT_EQ(pins_.Unpin(key.first, key.second), pinned_.erase(key) == 1);
  }

  void Promise() {
    const SequenceId sequence{static_cast<uint64_t>(random_.Between(1, 5))};
    if (random_.OneIn(3)) {
      promises_.Drop(sequence);
      promised_.erase(sequence);
      return;
    }
    const std::string salt = SomeSalt();
    const Tokens tokens = SomeTokens();
    promises_.Add(sequence, salt, tokens);
    promised_[sequence] = {salt, tokens};
  }

  void Clear() {
    tree_.Clear();
    pins_.Clear();
    promises_.Clear();
    list_.clear();
    pinned_.clear();
    promised_.clear();
    EXPECT_EQ(pool_.num_evictable(), 0);
    sequences_.clear();
    copies_.clear();
    step_ = 0;
    EXPECT_EQ(pool_.num_free(), pool_.num_blocks());
  }

  void Check() {
    ASSERT_EQ(pool_.CheckIntegrity(), absl::OkStatus());
    ASSERT_EQ(tree_.CheckIntegrity(), absl::OkStatus());
    EXPECT_EQ(tree_.num_blocks(), static_cast<int>(list_.size()));
    EXPECT_EQ(tree_.num_evictable(), std::count_if(list_.begin(), list_.end(),
                                                   [&](const Cached& cached) { return NumOwners(cached.block) == 0; }));
    for (const Cached& cached : list_) {
      EXPECT_TRUE(tree_.Contains(cached.block));
      EXPECT_EQ(pool_.num_owners(cached.block), NumOwners(cached.block));
    }
    const std::map<BlockId, int> counts = PinCounts();
    EXPECT_EQ(pins_.num_blocks(), static_cast<int>(counts.size()));
    EXPECT_EQ(pins_.num_pins(), static_cast<int>(pinned_.size()));
    CheckHit(SomeSalt(), SomeTokens());
    CheckPromise(SomeSalt(), SomeTokens());
  }

  void CheckHit(const std::string& salt, const Tokens& tokens) {
    const int limit = random_.Between(0, static_cast<int>(tokens.size()) + 1);
    const PrefixTree::Hit hit = tree_.Find(salt, tokens, limit);
    const Tokens prompt(tokens.begin(), tokens.begin() + std::min<size_t>(limit, tokens.size()));
    std::vector<BlockId> blocks;
    int longest = 0;
    for (size_t end = block_size_; end <= prompt.size(); end += block_size_) {
      const Cached* cached = Lookup(salt, Tokens(prompt.begin(), prompt.begin() + end));
      if (cached != nullptr) blocks.push_back(cached->block);
    }
    for (const Cached& cached : list_) {
      if (cached.salt == salt) longest = std::max(longest, NumEqual(cached.prefix, prompt));
    }
    EXPECT_EQ(hit.blocks, blocks);
    EXPECT_EQ(hit.num_tokens, longest);
    EXPECT_EQ(hit.num_partial_tokens, longest - static_cast<int>(blocks.size()) * block_size_);
    ASSERT_EQ(hit.partial_block.has_value(), hit.num_partial_tokens > 0);
    if (!hit.partial_block) return;
    ++num_partial_hits_;
    const auto partial = std::find_if(list_.begin(), list_.end(),
                                      [&](const Cached& cached) { return cached.block == *hit.partial_block; });
    ASSERT_NE(partial, list_.end());
    EXPECT_EQ(partial->salt, salt);
    EXPECT_EQ(partial->prefix.size(), (blocks.size() + 1) * block_size_);
    EXPECT_EQ(NumEqual(partial->prefix, prompt), longest);
  }

  void CheckPromise(const std::string& salt, const Tokens& tokens) {
    const int limit = random_.Between(0, static_cast<int>(tokens.size()) + 1);
    int longest = 0;
    for (const auto& [sequence, promise] : promised_) {
      if (promise.first != salt) continue;
      longest = std::max(longest, std::min(limit, NumEqual(promise.second, tokens)) / block_size_ * block_size_);
    }
    EXPECT_EQ(promises_.NumTokens(salt, tokens, limit), longest);
    if (longest > 0) ++num_promised_;
  }

  bool IsEvictedBefore(const Cached& a, const Cached& b) const {
    if (a.step != b.step) return a.step < b.step;
    if (a.prefix.size() != b.prefix.size()) return a.prefix.size() > b.prefix.size();
    return a.number < b.number;
  }

  void Use(const Sequence& sequence) {
    for (Cached& cached : list_) {
      if (cached.salt == sequence.salt && StartsWith(sequence.tokens, cached.prefix)) {
        cached.step = std::max(cached.step, step_);
      }
    }
  }

  const Cached* Lookup(const std::string& salt, const Tokens& prefix) const {
    for (const Cached& cached : list_) {
      if (cached.salt == salt && cached.prefix == prefix) return &cached;
    }
    return nullptr;
  }

  int NumOwners(BlockId block) const {
    int num_owners = 0;
    for (const Sequence& sequence : sequences_) {
      for (const BlockRef& held : sequence.blocks) num_owners += held.id() == block;
    }
    for (const BlockRef& held : copies_) num_owners += held.id() == block;
    const std::map<BlockId, int> pinned = PinCounts();
    const auto it = pinned.find(block);
    return num_owners + (it == pinned.end() ? 0 : it->second);
  }

  std::map<BlockId, int> PinCounts() const {
    std::map<BlockId, int> counts;
    for (const auto& [key, pin] : pinned_) {
      for (BlockId block : pin.blocks) ++counts[block];
    }
    return counts;
  }

  Sequence& AnySequence() { return sequences_[random_.Between(0, static_cast<int>(sequences_.size()) - 1)]; }
  std::string SomeSalt() { return random_.OneIn(4) ? "b" : ""; }
  TokenId SomeToken() { return random_.Between(1, num_letters_); }
  Tokens SomeTokens() {
    Tokens tokens;
    for (int i = random_.Between(0, 4 * block_size_); i > 0; --i) tokens.push_back(SomeToken());
    return tokens;
  }

  Random random_;
  const int block_size_;
  const int num_letters_;
  const int max_pinned_;
  BlockPool pool_;
  PrefixTree tree_;
  PrefixPins pins_;
  PrefixPromises promises_;
  std::vector<Sequence> sequences_;
  std::vector<BlockRef> copies_;
  std::vector<Cached> list_;
  std::map<std::pair<std::string, Tokens>, Pin> pinned_;
  std::map<SequenceId, std::pair<std::string, Tokens>> promised_;
  uint64_t step_ = 1;
  int64_t now_us_ = 0;
  int num_inserted_ = 0;
  int num_evictions_ = 0;
  int num_partial_hits_ = 0;
  int num_orphans_ = 0;
  int num_pins_ = 0;
  int num_promised_ = 0;
};

TEST(PrefixTreePropertyTest, TreePinsAndPromisesAnswerLikeAList) {
  int num_evictions = 0;
  int num_partial_hits = 0;
  int num_orphans = 0;
  int num_pins = 0;
  int num_promised = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    PrefixSim sim(seed);
    sim.Run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    num_evictions += sim.num_evictions();
    num_partial_hits += sim.num_partial_hits();
    num_orphans += sim.num_orphans();
    num_pins += sim.num_pins();
    num_promised += sim.num_promised();
  }
  EXPECT_GT(num_evictions, 20000);
  EXPECT_GT(num_partial_hits, 20000);
  EXPECT_GT(num_orphans, 100);
  EXPECT_GT(num_pins, 2000);
  EXPECT_GT(num_promised, 20000);
}

}  // namespace
}  // namespace quire
