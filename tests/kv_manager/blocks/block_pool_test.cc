// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/block_pool.h"

#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(BlockPoolTest, NewPoolHandsOutBlocksInOrder) {
  BlockPool pool(3);
  BlockRef a = pool.Take();
  BlockRef b = pool.Take();
  BlockRef c = pool.Take();
  EXPECT_EQ(a.id(), BlockId{0});
  EXPECT_EQ(b.id(), BlockId{1});
  EXPECT_EQ(c.id(), BlockId{2});
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.num_used(), 3);
}

TEST(BlockPoolTest, ExhaustedPoolGivesAReferenceToNothing) {
  BlockPool pool(1);
  BlockRef a = pool.Take();
  BlockRef none = pool.Take();
  EXPECT_TRUE(a);
  EXPECT_FALSE(none);
  EXPECT_EQ(pool.num_used(), 1);
}

TEST(BlockPoolTest, EmptyPoolIsAlwaysExhausted) {
  BlockPool pool(0);
  EXPECT_FALSE(pool.Take());
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPoolTest, BlockFreedLastIsTakenFirst) {
  BlockPool pool(4);
  std::optional<BlockRef> a = pool.Take();
  std::optional<BlockRef> b = pool.Take();
  a.reset();
  b.reset();
  EXPECT_EQ(pool.Take().id(), BlockId{1});
  BlockRef first = pool.Take();
  BlockRef second = pool.Take();
  EXPECT_EQ(first.id(), BlockId{1});
  EXPECT_EQ(second.id(), BlockId{0});
}

TEST(BlockPoolTest, LastReferenceReturnsBlockToFreeList) {
  BlockPool pool(2);
  std::optional<BlockRef> a = pool.Take();
  std::optional<BlockRef> shared = a->Share();
  EXPECT_EQ(pool.ref_count(BlockId{0}), 2);
  EXPECT_EQ(pool.num_shared(), 1);
  a.reset();
  EXPECT_EQ(pool.ref_count(BlockId{0}), 1);
  EXPECT_EQ(pool.num_shared(), 0);
  EXPECT_EQ(pool.num_free(), 1);
  shared.reset();
  EXPECT_EQ(pool.ref_count(BlockId{0}), 0);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPoolTest, MovingAReferenceKeepsTheCount) {
  BlockPool pool(2);
  BlockRef a = pool.Take();
  BlockRef b = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_EQ(b.id(), BlockId{0});
  EXPECT_EQ(pool.ref_count(BlockId{0}), 1);
}

TEST(BlockPoolTest, AssigningOverAReferenceDropsIt) {
  BlockPool pool(2);
  BlockRef a = pool.Take();
  BlockRef b = pool.Take();
  a = std::move(b);
  EXPECT_EQ(a.id(), BlockId{1});
  EXPECT_EQ(pool.ref_count(BlockId{0}), 0);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPoolTest, IntegrityHoldsThroughSharingAndFreeing) {
  BlockPool pool(8);
  std::vector<BlockRef> references;
  for (int i = 0; i < 6; ++i) references.push_back(pool.Take());
  for (int i = 0; i < 6; i += 2) references.push_back(references[i].Share());
  EXPECT_TRUE(pool.CheckIntegrity().ok());
  EXPECT_EQ(pool.num_shared(), 3);
  references.erase(references.begin() + 1, references.begin() + 4);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(pool.num_free() + pool.num_used(), pool.num_blocks());
}

TEST(BlockPoolTest, CachedBlockIsEvictableWhileOnlyTheCacheHoldsIt) {
  BlockPool pool(3);
  BlockRef cache = pool.Take();
  std::optional<BlockRef> owner = cache.Share();
  EXPECT_EQ(pool.num_shared(), 1);
  pool.SetCached(cache.id(), true);
  EXPECT_EQ(pool.num_shared(), 0) << "the cache is no owner";
  EXPECT_EQ(pool.num_evictable(), 0);
  owner.reset();
  EXPECT_TRUE(pool.is_evictable(cache.id()));
  EXPECT_EQ(pool.num_evictable(), 1);
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_EQ(pool.num_free(), 2);
  owner = cache.Share();
  EXPECT_FALSE(pool.is_evictable(cache.id()));
  EXPECT_EQ(pool.num_evictable(), 0);
  EXPECT_EQ(pool.num_used(), 1);
  const BlockRef second = cache.Share();
  EXPECT_EQ(pool.num_shared(), 1);
  EXPECT_EQ(pool.num_owners(cache.id()), 2);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
  pool.SetCached(cache.id(), false);
}

TEST(BlockPoolTest, BlockTheCacheGivesUpIsFreeOrItsOwners) {
  BlockPool pool(2);
  std::optional<BlockRef> cache = pool.Take();
  pool.SetCached(cache->id(), true);
  EXPECT_EQ(pool.num_evictable(), 1);
  pool.SetCached(cache->id(), false);
  EXPECT_EQ(pool.num_evictable(), 0);
  const BlockRef owner = cache->Share();
  pool.SetCached(cache->id(), true);
  pool.SetCached(cache->id(), false);
  EXPECT_EQ(pool.num_shared(), 1);
  cache.reset();
  EXPECT_EQ(pool.num_used(), 1);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPoolTest, EveryBlockThatBecameEvictableIsToldOnce) {
  BlockPool pool(3);
  std::vector<BlockRef> cache;
  for (int i = 0; i < 3; ++i) cache.push_back(pool.Take());
  std::vector<BlockRef> owners;
  for (int i = 0; i < 3; ++i) owners.push_back(cache[i].Share());
  for (const BlockRef& block : cache) pool.SetCached(block.id(), true);
  owners.erase(owners.begin() + 2);
  owners.erase(owners.begin());
  { const BlockRef again = cache[2].Share(); }
  EXPECT_TRUE(pool.is_newly_evictable(BlockId{0}));
  EXPECT_FALSE(pool.is_newly_evictable(BlockId{1}));
  std::vector<BlockId> told = {BlockId{7}};
  pool.TakeNewlyEvictable(&told);
  EXPECT_EQ(told, (std::vector<BlockId>{BlockId{2}, BlockId{0}}));
  pool.TakeNewlyEvictable(&told);
  EXPECT_TRUE(told.empty());
  { const BlockRef again = cache[0].Share(); }
  pool.TakeNewlyEvictable(&told);
  EXPECT_EQ(told, (std::vector<BlockId>{BlockId{0}}));
  for (const BlockRef& block : cache) pool.SetCached(block.id(), false);
}

TEST(BlockPoolDeathTest, CachedBlockWithoutTheCachesReferenceIsABug) {
  EXPECT_DEATH(
      {
        BlockPool pool(1);
        BlockRef block = pool.Take();
        pool.SetCached(block.id(), true);
        block = BlockRef();
      },
      "its cache has not cleared the mark");
}

TEST(BlockPoolDeathTest, PoolThatDiesBeforeItsReferencesIsABug) {
  EXPECT_DEATH(
      {
        BlockRef leaked;
        BlockPool pool(1);
        leaked = pool.Take();
      },
      "check failed");
}

}  // namespace
}  // namespace quire
