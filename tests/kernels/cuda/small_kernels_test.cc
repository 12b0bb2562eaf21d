// SPDX-License-Identifier: Apache-2.0

// The kernels around attention, run in the emulator and compared with float64. Copies and gathers are compared bit for
// bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/block_select.h"
#include "kernels/cuda/copy_blocks.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_append.h"
#include "kernels/cuda/row_kernels.h"
#include "kernels/reference/dense.h"
#include "kernels/simt/launch.h"
#include "tests/kernels/cuda/rope_append_case.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire::cuda {
namespace {

using simt::GlobalBuffer;
using simt::ReadOnlyBuffer;
using simt::WritableBuffer;

constexpr double kTolerance = 5e-3;  // Results are rounded to bfloat16.

// A random array of bfloat16, aligned for accesses of 16 bytes, and its values.
class Bf16Array {
 public:
  explicit Bf16Array(const std::vector<float>& values) : words_((values.size() + 7) / 8) {
    for (size_t i = 0; i < values.size(); ++i) data()[i] = ToBFloat16(values[i]).bits;
    size_ = values.size();
  }
  static Bf16Array OfBits(const std::vector<uint16_t>& bits) {
    Bf16Array array(std::vector<float>(bits.size()));
    std::copy(bits.begin(), bits.end(), array.data());
    return array;
  }
  uint16_t* data() { return reinterpret_cast<uint16_t*>(words_.data()); }
  size_t size() const { return size_; }
  std::vector<float> values() {
    std::vector<float> values(size_);
    for (size_t i = 0; i < size_; ++i) values[i] = ToFloat(BFloat16{data()[i]});
    return values;
  }

 private:
  std::vector<simt::U32x4> words_;
  size_t size_;
};

template <typename Kernel, typename Args>
void RunKernel(const Args& args, std::vector<GlobalBuffer> buffers) {
  simt::LaunchConfig config;
  config.num_blocks = 3;
  config.num_threads = Kernel::kThreads;
  config.shared_bytes = Kernel::kSharedBytes;
  config.buffers = std::move(buffers);
  const simt::LaunchReport report = simt::Launch(config, [&] { Kernel::Run(args); });
  EXPECT_TRUE(report.ok()) << report.ToString();
}

TEST(CudaKernelsTest, CopiedBlocksAreTheSameInAllLayersAndNothingElseChanges) {
  constexpr int kBlocks = 9, kLayers = 3;
  for (const int64_t block_bytes : {16, 512, 4096 + 16}) {
    Random random(1);
    std::vector<std::vector<simt::U32x4>> pools(kLayers), expected;
    for (auto& pool : pools) {
      pool.resize(kBlocks * block_bytes / 16);
      for (simt::U32x4& word : pool) {
        for (uint32_t& part : word.word) part = uint32_t(random.Int(0, 1 << 30));
      }
    }
    const std::vector<uint32_t> sources = {0, 0, 7}, destinations = {3, 5, 1};
    expected = pools;
    for (auto& pool : expected) {
      for (size_t i = 0; i < sources.size(); ++i) {
        std::copy_n(pool.begin() + sources[i] * block_bytes / 16, block_bytes / 16,
                    pool.begin() + destinations[i] * block_bytes / 16);
      }
    }
    std::vector<char*> pointers;
    std::vector<GlobalBuffer> buffers = {ReadOnlyBuffer("sources", sources.data(), sources.size()),
                                         ReadOnlyBuffer("destinations", destinations.data(), destinations.size())};
    for (auto& pool : pools) {
      pointers.push_back(reinterpret_cast<char*>(pool.data()));
      buffers.push_back(WritableBuffer("pool", pool.data(), pool.size()));
    }
    buffers.push_back(ReadOnlyBuffer("pools", pointers.data(), pointers.size()));
    RunKernel<CopyBlocksKernel>(
        CopyBlocksArgs{sources.data(), destinations.data(), int(sources.size()), kLayers, block_bytes, pointers.data()},
        std::move(buffers));
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ(0, memcmp(pools[layer].data(), expected[layer].data(), kBlocks * block_bytes)) << block_bytes;
    }
  }
}

TEST(CudaKernelsTest, RmsNormAgreesWithFloat64) {
  for (const int dim : {8, 288, 2048, 4096 + 8}) {
    Random random(dim);
    constexpr int kRows = 5;
    Bf16Array x(random.Normals(size_t(kRows) * dim, 3));
    const std::vector<double> values = Doubles(x.values());
    const std::vector<float> weight = random.Normals(dim);
    RmsNormKernelArgs args{x.data(), weight.data(), x.data(), kRows, dim, 1e-5f};
    RunKernel<RmsNormKernel<Bf16>>(
        args, {WritableBuffer("x", x.data(), x.size()), ReadOnlyBuffer("weight", weight.data(), weight.size())});
    EXPECT_LT(RelativeError(x.values(), reference::RmsNorm(values, Doubles(weight), 1e-5)), kTolerance) << dim;
  }
}

TEST(CudaKernelsTest, SiluMulAgreesWithFloat64) {
  for (const int dim : {8, 768, 1000}) {
    Random random(dim);
    constexpr int kRows = 7;
    Bf16Array x(random.Normals(size_t(kRows) * 2 * dim, 4)), y(std::vector<float>(size_t(kRows) * dim, NAN));
    RunKernel<GatedKernel<Bf16, Silu>>(
        GatedArgs{x.data(), y.data(), kRows, dim},
        {ReadOnlyBuffer("x", x.data(), x.size()), WritableBuffer("y", y.data(), y.size())});
    EXPECT_LT(RelativeError(y.values(), reference::SiluMul(Doubles(x.values()), dim)), kTolerance) << dim;
  }
}

TEST(CudaKernelsTest, SiluMulOfExtremesIsFinite) {
  const float large = 3e38f;
  Bf16Array x({large, -large, 200, -200, 0, 1, -1, 90, 1, 1, 1, 1, 1, 1, 1, 1}), y(std::vector<float>(8, NAN));
  RunKernel<GatedKernel<Bf16, Silu>>(GatedArgs{x.data(), y.data(), 1, 8}, {ReadOnlyBuffer("x", x.data(), x.size()),
                                                                           WritableBuffer("y", y.data(), y.size())});
  for (const float value : y.values()) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(y.values()[1], 0);
}

TEST(CudaKernelsTest, GatheredRowsAreTheSame) {
  constexpr int kDim = 264;
  Random random(3);
  Bf16Array x(random.Normals(20 * kDim)), y(std::vector<float>(30 * kDim, NAN));
  std::vector<int32_t> rows;
  for (int i = 0; i < 30; ++i) rows.push_back(random.Int(0, 19));
  RunKernel<GatherRowsKernel>(
      GatherRowsArgs{x.data(), rows.data(), y.data(), 30, kDim},
      {ReadOnlyBuffer("x", x.data(), x.size()), ReadOnlyBuffer("rows", rows.data(), rows.size()),
       WritableBuffer("y", y.data(), y.size())});
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(0, memcmp(y.data() + i * kDim, x.data() + rows[i] * kDim, kDim * 2)) << i;
  }
}

// Lists all tokens of a row, best first.
template <int kBlockThreads>
struct ListKernel {
  struct Args {
    ScoreRow row;
    uint64_t* keys;  // [row.size]
  };
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = sizeof(SelectMemory);

  static void Run(const Args& args) {
    simt::WaitForPriorGrid();
    BlockSelect<kThreads>::List(args.row, kLowestRankKey, ~uint64_t{0});
    for (int i = simt::ThreadIndex(); i < args.row.size; i += kThreads) {
      simt::StoreGlobal(args.keys + i, BlockSelect<kThreads>::Listed(i));
    }
  }
};

template <int kThreads>
void CheckList(int num_tokens) {
  SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << kThreads << " threads");
  Random random(num_tokens);
  const std::vector<float> scores = random.Normals(num_tokens);
  std::vector<uint64_t> keys(num_tokens), expected;
  for (int i = 0; i < num_tokens; ++i) expected.push_back(RankKey(scores[i], i));
  std::sort(expected.rbegin(), expected.rend());
  using Kernel = ListKernel<kThreads>;
  const typename Kernel::Args args = {ScoreRow::Raw(scores.data(), num_tokens), keys.data()};
  simt::LaunchConfig config;
  config.num_threads = kThreads;
  config.shared_bytes = Kernel::kSharedBytes;
  config.buffers = {ReadOnlyBuffer("scores", scores.data(), scores.size()),
                    WritableBuffer("keys", keys.data(), keys.size())};
  const simt::LaunchReport report = simt::Launch(config, [&] { Kernel::Run(args); });
  EXPECT_TRUE(report.ok()) << report.ToString();
  EXPECT_EQ(keys, expected);
  // The sort has none. Before it, threads write the keys to the list in the order in which they come.
  EXPECT_LE(report.counters.shared_conflicts, num_tokens);
}

TEST(CudaKernelsTest, TokensAreSortedWithFewBankConflicts) {
  for (const int num_tokens : {1, 63, 64, 65, 1000, 2048}) CheckList<512>(num_tokens);
  for (const int num_tokens : {2, 200, 2047}) CheckList<32>(num_tokens);
}

template <UnitSize kSize, int kHeadDim, typename Element = Bf16>
void CheckRopeAppend(int block_size, bool has_norm) {
  SCOPED_TRACE(testing::Message() << "blocks of " << block_size << ", heads of " << kHeadDim << ", norm " << has_norm);
  const RopeAppendCase<kHeadDim> inputs(block_size, {.has_norm = has_norm}, DataType::kBFloat16,
                                        Element::kKvBytes == 1);
  Bf16Array qkv = Bf16Array::OfBits(inputs.qkv);
  std::vector<simt::U32x4> pool(inputs.pool_elements() * sizeof(uint16_t) / sizeof(simt::U32x4));
  RopeAppendKernelArgs args = inputs.Args();
  args.qkv = qkv.data();
  args.positions = inputs.positions.data();
  args.slots = inputs.slots.data();
  args.rotary_table = inputs.rotary_table.data();
  inputs.SetNorms(inputs.q_norm.data(), inputs.k_norm.data(), &args);
  args.kv_pool = reinterpret_cast<char*>(pool.data());
  RunKernel<RopeAppendKernel<Element, kSize, kHeadDim>>(
      args, {WritableBuffer("qkv", qkv.data(), qkv.size()), WritableBuffer("pool", pool.data(), pool.size()),
             ReadOnlyBuffer("positions", inputs.positions.data(), inputs.positions.size()),
             ReadOnlyBuffer("slots", inputs.slots.data(), inputs.slots.size()),
             ReadOnlyBuffer("table", inputs.rotary_table.data(), inputs.rotary_table.size()),
             ReadOnlyBuffer("q norm", inputs.q_norm.data(), inputs.q_norm.size()),
             ReadOnlyBuffer("k norm", inputs.k_norm.data(), inputs.k_norm.size())});
  inputs.Check(qkv.data(), reinterpret_cast<const uint16_t*>(pool.data()));
}

TEST(CudaKernelsTest, RopeAppendRotatesAndStores) {
  CheckRopeAppend<UnitSize::kFull, 64>(16, false);
  CheckRopeAppend<UnitSize::kFull, 128>(32, true);
  CheckRopeAppend<UnitSize::kFull, 80>(16, true);
  CheckRopeAppend<UnitSize::kFull, 96>(64, false);
  CheckRopeAppend<UnitSize::kFull, 256>(16, true);
  CheckRopeAppend<UnitSize::kSmall, 64>(1, false);
  CheckRopeAppend<UnitSize::kSmall, 128>(2, true);
  CheckRopeAppend<UnitSize::kSmall, 80>(4, false);
  CheckRopeAppend<UnitSize::kSmall, 96>(8, true);
}

TEST(CudaKernelsTest, RopeAppendRoundsToInt8) {
  CheckRopeAppend<UnitSize::kFull, 16, Int8Kv<Bf16>>(16, false);
  CheckRopeAppend<UnitSize::kFull, 64, Int8Kv<Bf16>>(16, false);
  CheckRopeAppend<UnitSize::kFull, 128, Int8Kv<Bf16>>(32, true);
  CheckRopeAppend<UnitSize::kFull, 80, Int8Kv<Bf16>>(16, true);
  CheckRopeAppend<UnitSize::kFull, 80, Int8Kv<Bf16>>(16, false);
  CheckRopeAppend<UnitSize::kFull, 96, Int8Kv<Bf16>>(64, false);
}

// The map from chunks to places is one-to-one, and eight consecutive tokens have the same chunk in different banks.
template <int kHeadDim, int kElementBytes = 2>
void CheckPlaces(int num_tokens) {
  const KvUnit<kHeadDim, kElementBytes> unit = {num_tokens};
  std::vector<bool> is_taken(unit.matrix_chunks());
  for (int token = 0; token < num_tokens; ++token) {
    for (int chunk = 0; chunk < unit.kRowChunks; ++chunk) {
      const int place = unit.Place(token, chunk);
      ASSERT_TRUE(place >= 0 && place < unit.matrix_chunks() && !is_taken[place]);
      is_taken[place] = true;
      EXPECT_EQ(unit.TokenAt(place), token);
      EXPECT_EQ(unit.ChunkAt(place), chunk);
    }
  }
  for (int first = 0; first + 8 <= num_tokens; first += 8) {
    for (int chunk = 0; chunk < unit.kRowChunks; ++chunk) {
      int banks = 0;
      for (int token = first; token < first + 8; ++token) banks |= 1 << unit.Place(token, chunk) % 8;
      EXPECT_EQ(banks, 0xff);
    }
  }
}

TEST(CudaKernelsTest, ChunksOfAUnitHavePlacesWithoutConflicts) {
  for (const int num_tokens : {1, 2, 4, 8, 16}) {
    CheckPlaces<16>(num_tokens);
    CheckPlaces<64>(num_tokens);
    CheckPlaces<80>(num_tokens);
    CheckPlaces<96>(num_tokens);
    CheckPlaces<128>(num_tokens);
    CheckPlaces<256>(num_tokens);
  }
  CheckPlaces<16, 1>(16);
  CheckPlaces<32, 1>(16);
  CheckPlaces<64, 1>(16);
  CheckPlaces<80, 1>(16);
  CheckPlaces<96, 1>(16);
  CheckPlaces<128, 1>(16);
  CheckPlaces<256, 1>(16);
}

}  // namespace
}  // namespace quire::cuda
