// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/rank_sums.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/rounding.h"
#include "kernels/experts.h"

namespace quire::cpu {
namespace {

// More bytes than these of each rank are exchanged in two steps: every rank adds a part of the sums, and sends the
// results. Then a rank receives 2 (n - 1) / n times its own bytes, and not n - 1 times.
constexpr size_t kMostGatheredBytes = 256 << 10;
constexpr int kFloatsAtOnce = 256;
// Adding fewer numbers takes less time than waking a thread.
constexpr int kMinFloatsPerItem = 32 << 10;

// Writes the tree of `count` arrays of n <= kFloatsAtOnce numbers: array r begins at sums + r * stride.
void AddTree(const float* sums, int64_t stride, int count, int n, float* to) {
  if (count == 1) {
    std::copy_n(sums, n, to);
    return;
  }
  std::array<float, kFloatsAtOnce> right;
  AddTree(sums, stride, count / 2, n, to);
  AddTree(sums + count / 2 * stride, stride, count / 2, n, right.data());
  for (int i = 0; i < n; ++i) to[i] += right[i];
}

}  // namespace

CpuRankSums::Parts CpuRankSums::Gather(const AddPartsArgs& args) {
  const int64_t count = int64_t{args.num_tokens} * args.dim;
  if (args.group == nullptr) return {args.part, count, 1};
  const int size = args.group->size();
  const size_t bytes = size_t(count) * sizeof(float);
  auto* const received = static_cast<float*>(GrownTo(bytes <= kMostGatheredBytes ? bytes * size : bytes, &received_));
  if (bytes <= kMostGatheredBytes) {
    return {args.group->AllGather(args.part, bytes, received) ? received : nullptr, count, size};
  }
  const int64_t share = count / size;
  if (!args.group->AllToAll(args.part, bytes / size, received)) return {nullptr, 0, 0};
  auto* const own = static_cast<float*>(GrownTo(bytes / size, &sent_));
  const int num_items = int(CeilDiv(share, int64_t{kMinFloatsPerItem}));
  pool_->ForEach(num_items, [&](int item, int) {
    const int64_t end = std::min(share, (item + 1) * int64_t{kMinFloatsPerItem});
    for (int64_t i = item * int64_t{kMinFloatsPerItem}; i < end; i += kFloatsAtOnce) {
      AddTree(received + i, share, size, int(std::min(end - i, int64_t{kFloatsAtOnce})), own + i);
    }
  });
  auto* const joined = static_cast<float*>(GrownTo(bytes, &joined_));
  return {args.group->AllGather(own, bytes / size, joined) ? joined : nullptr, count, 1};
}

void CpuRankSums::FinishRow(const AddPartsArgs& args, const Parts& parts, int row) const {
  std::array<float, kFloatsAtOnce> sums;
  const int64_t at = int64_t{row} * args.dim;
  for (int first = 0; first < args.dim; first += kFloatsAtOnce) {
    const int n = std::min(kFloatsAtOnce, args.dim - first);
    AddTree(parts.sums + at + first, parts.stride, parts.count, n, sums.data());
    if (args.bias != nullptr) {
      for (int i = 0; i < n; ++i) sums[i] += args.bias[first + i];
    }
    if (args.scale != 1) {
      for (int i = 0; i < n; ++i) sums[i] *= args.scale;
    }
    if (args.residual != nullptr) {
      const float* const residual = static_cast<const float*>(args.residual) + at + first;
      for (int i = 0; i < n; ++i) sums[i] += residual[i];
    }
    std::copy_n(sums.data(), n, static_cast<float*>(args.y) + at + first);
  }
}

// The kernel adds the parts as experts of weight 1 in the ranges of their ranks.
void CpuRankSums::FinishSharedRow(const AddPartsArgs& args, const Parts& parts, int row) const {
  std::array<const float*, kExpertRanges> rows;
  std::array<float, kExpertRanges> weights;
  std::array<uint8_t, kExpertRanges> ranges;
  const int64_t at = int64_t{row} * args.dim;
  for (int part = 0; part < parts.count; ++part) {
    rows[part] = parts.sums + part * parts.stride + at;
    weights[part] = 1;
    ranges[part] = uint8_t(part * (kExpertRanges / parts.count));
  }
  kernels_.sum_experts({.count = parts.count,
                        .rows = rows.data(),
                        .weights = weights.data(),
                        .ranges = ranges.data(),
                        .shared = static_cast<const float*>(args.shared) + at,
                        .shared_weight = args.shared_weights == nullptr ? 1 : args.shared_weights[row],
                        .residual = args.residual == nullptr ? nullptr : static_cast<const float*>(args.residual) + at,
                        .y = static_cast<float*>(args.y) + at,
                        .dim = args.dim});
}

void CpuRankSums::Run(const AddPartsArgs& args) {
  const Parts parts = Gather(args);
  if (parts.sums == nullptr) return;
  const int rows_per_item = std::max(1, kMinFloatsPerItem / args.dim);
  pool_->ForEach(CeilDiv(args.num_tokens, rows_per_item), [&](int item, int) {
    const int end = std::min(args.num_tokens, (item + 1) * rows_per_item);
    for (int row = item * rows_per_item; row < end; ++row) {
      args.shared == nullptr ? FinishRow(args, parts, row) : FinishSharedRow(args, parts, row);
    }
  });
}

void CpuRankSums::Run(const GatherColumnsArgs& args) {
  const int size = args.group->size(), share = ColumnsOfRank(args.cols, size);
  const int own = std::min(share, args.cols - args.group->rank() * share);
  const size_t element = SizeOf(args.type), share_bytes = share * element;
  const void* from = args.x;
  if (args.x_stride != share) {
    auto* const sent = static_cast<char*>(GrownTo(args.num_rows * share_bytes, &sent_));
    for (int row = 0; row < args.num_rows; ++row) {
      memcpy(sent + row * share_bytes, static_cast<const char*>(args.x) + row * args.x_stride * element, own * element);
    }
    from = sent;
  }
  const size_t bytes = args.num_rows * share_bytes;
  const auto* const received = static_cast<const char*>(GrownTo(bytes * size, &received_));
  if (!args.group->AllGather(from, bytes, received_.data())) return;
  pool_->ForEach(args.num_rows, [&](int row, int) {
    char* const to = static_cast<char*>(args.y) + row * args.cols * element;
    for (int r = 0; r < size; ++r) {
      const int columns = std::min(share, args.cols - r * share);
      memcpy(to + r * share_bytes, received + r * bytes + row * share_bytes, columns * element);
    }
  });
}

void CpuRankSums::Run(const ExchangeRowsArgs& args) {
  const int size = args.group->size(), rank = args.group->rank(), share = ColumnsOfRank(args.cols, size);
  const int own = std::min(share, args.cols - rank * share), turns = CeilDiv(args.num_rows, size);
  const size_t element = SizeOf(args.type), share_bytes = share * element, bytes = turns * share_bytes;
  auto* const sent = static_cast<char*>(GrownTo(bytes * size, &sent_));
  for (int row = 0; row < args.num_rows; ++row) {
    memcpy(sent + (row % size) * bytes + (row / size) * share_bytes,
           static_cast<const char*>(args.x) + row * args.x_stride * element, own * element);
  }
  const auto* const received = static_cast<const char*>(GrownTo(bytes * size, &received_));
  if (!args.group->AllToAll(sent, bytes, received_.data())) return;
  for (int row = 0; row < RowsInTurn(args.num_rows, rank, size); ++row) {
    char* const to = static_cast<char*>(args.y) + row * args.cols * element;
    for (int r = 0; r < size; ++r) {
      const int columns = std::min(share, args.cols - r * share);
      memcpy(to + r * share_bytes, received + r * bytes + row * share_bytes, columns * element);
    }
  }
}

}  // namespace quire::cpu
