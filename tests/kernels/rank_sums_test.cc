// SPDX-License-Identifier: Apache-2.0

#include "kernels/rank_sums.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/local_group.h"

namespace quire {
namespace {

using Floats = std::vector<float>;

Floats Random(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Floats values(count);
  for (float& value : values) value = static_cast<float>(random() % 20001) / 10000 - 1;
  return values;
}

bool HaveSameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs body(backend, group) in a thread of each rank.
template <typename Body>
void ForRanks(int size, const Body& body) {
  LocalGroup group(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = cpu::MakeCpuBackend(/*num_threads=*/1, cpu::SupportedIsas().back());
      body(backend.get(), group.collective(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Returns element i of the tree of the parts [first, first + count).
float Tree(const std::vector<Floats>& parts, int first, int count, size_t i) {
  if (count == 1) return parts[first][i];
  return Tree(parts, first, count / 2, i) + Tree(parts, first + count / 2, count / 2, i);
}

// The most tokens take the exchange in two steps.
TEST(RankSumsTest, PartsAreAddedAsATreeBeforeBiasScaleAndResidual) {
  constexpr int kDim = 1024;
  constexpr float kScale = 0.6f;
  for (const int size : {2, 4, 8}) {
    for (const int num_tokens : {1, 3, 130}) {
      const size_t count = size_t{kDim} * num_tokens;
      std::vector<Floats> parts;
      for (int rank = 0; rank < size; ++rank) parts.push_back(Random(count, rank));
      const Floats bias = Random(kDim, 100), residual = Random(count, 101);
      Floats expected(count), plain(count);
      for (size_t i = 0; i < count; ++i) {
        plain[i] = Tree(parts, 0, size, i);
        expected[i] = (plain[i] + bias[i % kDim]) * kScale + residual[i];
      }
      ForRanks(size, [&](Backend* backend, Collective* group) {
        Floats y = residual, without(count);
        AddPartsArgs args{};
        args.group = group;
        args.part = parts[group->rank()].data();
        args.num_tokens = num_tokens;
        args.dim = kDim;
        args.y = without.data();
        backend->AddParts(args);
        EXPECT_TRUE(HaveSameBits(without, plain)) << size << " ranks, " << num_tokens << " tokens";
        args.bias = bias.data();
        args.scale = kScale;
        args.residual = args.y = y.data();
        backend->AddParts(args);
        EXPECT_TRUE(HaveSameBits(y, expected)) << size << " ranks, " << num_tokens << " tokens";
      });
    }
  }
}

TEST(RankSumsTest, SumsOfAllRanksGetTheSameEnd) {
  const Floats sums = Random(64, 1), bias = Random(32, 2), residual = Random(64, 3);
  const auto backend = cpu::MakeCpuBackend(1, cpu::SupportedIsas().back());
  Floats y(64);
  AddPartsArgs args{};
  args.part = sums.data();
  args.bias = bias.data();
  args.scale = 0.5f;
  args.residual = residual.data();
  args.y = y.data();
  args.num_tokens = 2;
  args.dim = 32;
  backend->AddParts(args);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], (sums[i] + bias[i % 32]) * 0.5f + residual[i]);
}

// 10 columns are 3, 3, 3 and 1 on four ranks.
TEST(RankSumsTest, ColumnsOfRanksAreJoined) {
  constexpr int kRows = 5, kCols = 10, kStride = 4;
  ForRanks(4, [&](Backend* backend, Collective* group) {
    const int first = group->rank() * ColumnsOfRank(kCols, group->size());
    Floats x(kRows * kStride, -1), y(kRows * kCols);
    for (int row = 0; row < kRows; ++row) {
      for (int col = first; col < std::min(kCols, first + 3); ++col) {
        x[row * kStride + col - first] = static_cast<float>(row * 100 + col);
      }
    }
    backend->GatherColumns({.group = group,
                            .x = x.data(),
                            .x_stride = kStride,
                            .y = y.data(),
                            .num_rows = kRows,
                            .cols = kCols,
                            .type = DataType::kFloat32});
    for (int row = 0; row < kRows; ++row) {
      for (int col = 0; col < kCols; ++col) EXPECT_EQ(y[row * kCols + col], static_cast<float>(row * 100 + col));
    }
    const int num_turns = RowsInTurn(kRows, group->rank(), group->size());
    Floats turns(num_turns * kCols);
    backend->ExchangeRows({.group = group,
                           .x = x.data(),
                           .x_stride = kStride,
                           .y = turns.data(),
                           .num_rows = kRows,
                           .cols = kCols,
                           .type = DataType::kFloat32});
    EXPECT_EQ(num_turns, group->rank() == 0 ? 2 : 1);
    for (int turn = 0; turn < num_turns; ++turn) {
      const int row = group->rank() + turn * group->size();
      for (int col = 0; col < kCols; ++col) EXPECT_EQ(turns[turn * kCols + col], static_cast<float>(row * 100 + col));
    }
  });
}

// A rank without rows takes part.
TEST(RankSumsTest, FewerRowsThanRanksAreExchanged) {
  ForRanks(4, [&](Backend* backend, Collective* group) {
    const float x = static_cast<float>(group->rank());
    Floats y(4, -1);
    backend->ExchangeRows(
        {.group = group, .x = &x, .x_stride = 1, .y = y.data(), .num_rows = 1, .cols = 4, .type = DataType::kFloat32});
    const Floats expected = group->rank() == 0 ? Floats{0, 1, 2, 3} : Floats{-1, -1, -1, -1};
    EXPECT_EQ(y, expected);
  });
}

}  // namespace
}  // namespace quire
