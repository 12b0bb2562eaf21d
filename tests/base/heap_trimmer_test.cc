// SPDX-License-Identifier: Apache-2.0

#include "base/heap_trimmer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/process_usage.h"

namespace quire {
namespace {

constexpr int64_t kMiB = 1 << 20;

// 64 MiB that another thread has allocated in small pieces. The last piece comes first.
std::vector<std::unique_ptr<char[]>> Allocate() {
  constexpr int kPiece = 16 * 1024;
  std::vector<std::unique_ptr<char[]>> pieces(64 * kMiB / kPiece);
  std::thread([&] {
    for (auto& piece : pieces) piece = std::make_unique<char[]>(kPiece);
  }).join();
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

TEST(HeapTrimmerTest, GivesFreeMemoryBackOnceTheProcessHasGrown) {
#if defined(QUIRE_ADDRESS_SANITIZER) || defined(QUIRE_THREAD_SANITIZER)
  GTEST_SKIP() << "a sanitizer has its own malloc";
#endif
  HeapTrimmer trimmer(32 * kMiB);
  for (int i = 0; i < 2; ++i) trimmer.TrimIfGrown();
  const int64_t before = ReadProcessUsage().resident_bytes;
  const auto grown = [&] { return ReadProcessUsage().resident_bytes - before; };
  std::vector<std::unique_ptr<char[]>> pieces = Allocate();
  trimmer.TrimIfGrown();
  EXPECT_GT(grown(), 60 * kMiB);
  pieces.resize(1);  // The last piece keeps malloc from giving the memory back.
  ASSERT_GT(grown(), 40 * kMiB) << "malloc has kept nothing, so this test shows nothing";
  // The attempt before was in vain, so a few calls are skipped.
  for (int i = 0; i < 5; ++i) trimmer.TrimIfGrown();
  EXPECT_LT(grown(), 8 * kMiB);
}

TEST(HeapTrimmerTest, LargeBlocksGoBackWhenTheyAreFreed) {
#if defined(QUIRE_ADDRESS_SANITIZER) || defined(QUIRE_THREAD_SANITIZER)
  GTEST_SKIP() << "a sanitizer has its own malloc";
#endif
  GiveLargeBlocksBack();
  const int64_t before = ReadProcessUsage().resident_bytes;
  // By default, malloc would keep later blocks of this size once one was freed.
  std::string(20 * kMiB, 'x').clear();
  std::vector<std::string> blocks;
  for (int i = 0; i < 8; ++i) blocks.emplace_back(8 * kMiB, 'x');
  const std::unique_ptr<char[]> last = std::make_unique<char[]>(1000);  // It keeps the heap from shrinking.
  EXPECT_GT(ReadProcessUsage().resident_bytes - before, 60 * kMiB);
  blocks.clear();
  EXPECT_LT(ReadProcessUsage().resident_bytes - before, 8 * kMiB);
}

}  // namespace
}  // namespace quire
