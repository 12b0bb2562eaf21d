// SPDX-License-Identifier: Apache-2.0

#include "worker/block_storage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"

namespace quire {
namespace {

constexpr size_t kPrefaultPiece = size_t{1} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<BlockStorage>> BlockStorage::Create(Backend* backend, const KvLayout& layout,
                                                                   uint32_t num_blocks, uint32_t num_host_blocks,
                                                                   bool prefault) {
  std::unique_ptr<BlockStorage> storage(new BlockStorage(backend, layout, num_blocks, num_host_blocks));
  const size_t layer_bytes = num_blocks * layout.block_bytes();
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    void* pool = backend->Allocate(layer_bytes);
    if (pool == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot allocate the KV pool of ", num_blocks,
                                                       " blocks: ", FormatBytes(storage->pool_bytes()), ", got ",
                                                       FormatBytes(layer_bytes * layer)));
    }
    storage->pools_.push_back(pool);
    if (prefault) storage->Prefault(pool);
  }
  if (num_host_blocks == 0) return storage;
  storage->host_pool_ = backend->AllocateHost(storage->host_bytes());
  if (storage->host_pool_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate the host tier of ", num_host_blocks,
                                                     " blocks: ", FormatBytes(storage->host_bytes())));
  }
  return storage;
}

BlockStorage::BlockStorage(Backend* backend, const KvLayout& layout, uint32_t num_blocks, uint32_t num_host_blocks)
    : backend_(backend), layout_(layout), num_blocks_(num_blocks), num_host_blocks_(num_host_blocks) {
  pools_.reserve(layout.num_layers);
}

BlockStorage::~BlockStorage() {
  for (void* pool : pools_) backend_->Free(pool);
  if (host_pool_ != nullptr) backend_->FreeHost(host_pool_);
}

void BlockStorage::Copy(const uint32_t* sources, const uint32_t* destinations, int num_copies) {
  backend_->CopyBlocks({.sources = sources,
                        .destinations = destinations,
                        .num_copies = num_copies,
                        .layout = &layout_,
                        .kv_pools = pools_.data()});
}

void BlockStorage::SwapOut(const uint32_t* blocks, const uint32_t* host_blocks, int num_swaps) {
  Swap(SwapDirection::kOut, blocks, host_blocks, num_swaps);
}

void BlockStorage::SwapIn(const uint32_t* host_blocks, const uint32_t* blocks, int num_swaps) {
  Swap(SwapDirection::kIn, blocks, host_blocks, num_swaps);
}

void BlockStorage::Swap(SwapDirection direction, const uint32_t* blocks, const uint32_t* host_blocks, int num_swaps) {
  backend_->SwapBlocks({.direction = direction,
                        .blocks = blocks,
                        .host_blocks = host_blocks,
                        .num_swaps = num_swaps,
                        .layout = &layout_,
                        .kv_pools = pools_.data(),
                        .host_pool = host_pool_});
}

void BlockStorage::Prefault(void* pool) {
  const std::vector<char> zeros(kPrefaultPiece);
  const size_t bytes = num_blocks_ * layout_.block_bytes();
  for (size_t at = 0; at < bytes; at += kPrefaultPiece) {
    backend_->CopyToDevice(static_cast<char*>(pool) + at, zeros.data(), std::min(kPrefaultPiece, bytes - at));
  }
}

}  // namespace quire
