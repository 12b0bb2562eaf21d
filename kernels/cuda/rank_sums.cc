// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/rank_sums.h"

#include <algorithm>

#include "kernels/cuda/fatal.h"
#include "kernels/cuda/rank_kernels.h"

namespace quire::cuda {
namespace {

constexpr size_t kWordBytes = sizeof(uint32_t);

int Words(size_t bytes) {
  if (bytes % kWordBytes != 0) Fatal("columns of %zu bytes", bytes);
  return int(bytes / kWordBytes);
}

}  // namespace

CudaRankSums::CudaRankSums(Device* device, const KernelTable* kernels, bool exact)
    : device_(device),
      kernels_(*kernels),
      exact_(exact),
      sent_(device, "columns of this rank"),
      received_(device, "sums and columns of all ranks") {}

BackendStatus CudaRankSums::SetGroup(Collective* group) {
  if (has_group_) device_->LeaveGroup();
  has_group_ = false;
  if (group == nullptr) return BackendStatus::Ok();
  BackendStatus status = device_->JoinGroup(group);
  has_group_ = status.ok();
  return status;
}

void CudaRankSums::AllGather(const void* from, size_t bytes, int num_ranks, void* to) {
  if (has_group_) return device_->AllGather(from, bytes, to);
  for (int rank = 0; rank < num_ranks; ++rank) device_->Copy(static_cast<char*>(to) + rank * bytes, from, bytes);
}

void CudaRankSums::Run(const AddPartsArgs& args) {
  if (args.shared != nullptr) Fatal("outputs of experts of %d ranks", args.group == nullptr ? 1 : args.group->size());
  const size_t count = size_t(args.num_tokens) * args.dim;
  const float* parts = args.part;
  int num_parts = 1;
  if (args.group != nullptr && exact_) {
    num_parts = args.group->size();
    auto* const all = received_.Reserve<float>(num_parts * count);
    AllGather(args.part, count * sizeof(float), num_parts, all);
    parts = all;
  } else if (args.group != nullptr) {
    // Steps at the start have no group yet, but take the memory.
    auto* const sums = received_.Reserve<float>(count);
    if (has_group_) {
      device_->AllReduce(args.part, count, sums);
      parts = sums;
    }
  }
  device_->Launch(kernels_.add_parts,
                  AddPartsKernelArgs{.parts = parts,
                                     .bias = args.bias,
                                     .residual = static_cast<const uint16_t*>(args.residual),
                                     .y = static_cast<uint16_t*>(args.y),
                                     .num_parts = num_parts,
                                     .num_rows = args.num_tokens,
                                     .dim = args.dim,
                                     .scale = args.scale},
                  NumBlocks(int64_t(count) / 8, kernels_.add_parts.num_threads));
}

void CudaRankSums::JoinColumns(const void* x, size_t x_stride, size_t part_bytes, int num_rows, size_t bytes,
                               size_t y_stride, void* y) {
  device_->Launch(kernels_.join_columns,
                  JoinColumnsArgs{.x = static_cast<const uint32_t*>(x),
                                  .y = static_cast<uint32_t*>(y),
                                  .num_rows = num_rows,
                                  .num_words = Words(bytes),
                                  .part_words = Words(part_bytes),
                                  .x_stride = Words(x_stride),
                                  .y_stride = Words(y_stride)},
                  NumBlocks(int64_t{num_rows} * Words(bytes), kernels_.join_columns.num_threads));
}

void CudaRankSums::Run(const quire::GatherColumnsArgs& args) {
  const int size = args.group->size(), share = ColumnsOfRank(args.cols, size);
  const int own = std::min(share, args.cols - args.group->rank() * share);
  const size_t element = SizeOf(args.type), share_bytes = share * element, bytes = args.num_rows * share_bytes;
  const void* from = args.x;
  if (args.x_stride != share || own != share) {
    void* const sent = sent_.Reserve<char>(bytes);
    JoinColumns(args.x, args.x_stride * element, own * element, args.num_rows, own * element, share_bytes, sent);
    from = sent;
  }
  void* const all = received_.Reserve<char>(bytes * size);
  AllGather(from, bytes, size, all);
  JoinColumns(all, share_bytes, share_bytes, args.num_rows, args.cols * element, args.cols * element, args.y);
}

}  // namespace quire::cuda
