// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <vector>

#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

using BlockCopyTest = CpuBackendTest;

TEST_P(BlockCopyTest, CopyBlocksCopiesWholeBlocksOfEveryLayer) {
  const auto backend = MakeBackend();
  const KvLayout layout = {
      .num_layers = 2, .num_kv_heads = 3, .head_dim = 4, .block_size = 2, .type = KvType::kFloat32};
  Random random(9);
  std::vector<std::vector<float>> pools, expected;
  for (int layer = 0; layer < 2; ++layer) {
    pools.push_back(random.Normals(5 * layout.block_elements()));
    expected.push_back(pools[layer]);
    const auto block = [&](int i) { return expected[layer].begin() + int64_t(i * layout.block_elements()); };
    std::copy(block(1), block(2), block(4));
    std::copy(block(0), block(1), block(2));
  }
  const std::vector<uint32_t> sources = {1, 0}, destinations = {4, 2};
  void* const data[] = {pools[0].data(), pools[1].data()};
  backend->CopyBlocks({.sources = sources.data(),
                       .destinations = destinations.data(),
                       .num_copies = 2,
                       .layout = &layout,
                       .kv_pools = data});
  EXPECT_EQ(pools, expected);
}

TEST_P(BlockCopyTest, SwapBlocksMovesWholeBlocksToOnePieceEachAndBack) {
  const auto backend = MakeBackend();
  const KvLayout layout = {
      .num_layers = 2, .num_kv_heads = 3, .head_dim = 4, .block_size = 2, .type = KvType::kFloat32};
  const size_t block = layout.block_elements();
  Random random(10);
  std::vector<std::vector<float>> pools = {random.Normals(5 * block), random.Normals(5 * block)};
  void* const data[] = {pools[0].data(), pools[1].data()};
  float* const host = static_cast<float*>(backend->AllocateHost(3 * layout.block_bytes_all_layers()));
  const std::vector<uint32_t> out = {1, 4}, host_blocks = {2, 0}, in = {0, 3};
  BlockSwapArgs args = {.direction = SwapDirection::kOut,
                        .blocks = out.data(),
                        .host_blocks = host_blocks.data(),
                        .num_swaps = 2,
                        .layout = &layout,
                        .kv_pools = data,
                        .host_pool = host};
  std::vector<std::vector<float>> expected = pools;
  backend->SwapBlocks(args);
  EXPECT_EQ(pools, expected);
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_TRUE(std::equal(&pools[layer][block], &pools[layer][2 * block], host + (2 * 2 + layer) * block));
    EXPECT_TRUE(std::equal(&pools[layer][4 * block], pools[layer].data() + 5 * block, host + layer * block));
    std::copy_n(&pools[layer][block], block, &expected[layer][0]);
    std::copy_n(&pools[layer][4 * block], block, &expected[layer][3 * block]);
  }
  EXPECT_TRUE(std::all_of(host + 2 * block, host + 4 * block, [](float x) { return x == 0; }));
  args.direction = SwapDirection::kIn;
  args.blocks = in.data();
  backend->SwapBlocks(args);
  EXPECT_EQ(pools, expected);
  backend->FreeHost(host);
}

TEST_P(BlockCopyTest, AllocatedMemoryIsZeroedAndAligned) {
  const auto backend = MakeBackend();
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{5} << 20}) {
    char* memory = static_cast<char*>(backend->Allocate(bytes));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    EXPECT_TRUE(std::all_of(memory, memory + bytes, [](char c) { return c == 0; }));
    backend->Free(memory);
  }
  EXPECT_EQ(backend->Allocate(size_t{1} << 60), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Isas, BlockCopyTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
