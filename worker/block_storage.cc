#include "worker/block_storage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/pool_size.h"

namespace quire {
namespace {

constexpr size_t kPrefaultPiece = size_t{1} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<BlockStorage>> BlockStorage::Create(Backend* backend, const KvLayout& layout,
                                                                   uint32_t num_blocks, bool prefault) {
  std::unique_ptr<BlockStorage> storage(new BlockStorage(backend, layout, num_blocks));
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
  return storage;
}

BlockStorage::BlockStorage(Backend* backend, const KvLayout& layout, uint32_t num_blocks)
    : backend_(backend), layout_(layout), num_blocks_(num_blocks) {
  pools_.reserve(layout.num_layers);
}

BlockStorage::~BlockStorage() {
  for (void* pool : pools_) backend_->Free(pool);
}

void BlockStorage::Copy(const uint32_t* sources, const uint32_t* destinations, int num_copies) {
  backend_->CopyBlocks({.sources = sources,
                        .destinations = destinations,
                        .num_copies = num_copies,
                        .layout = &layout_,
                        .kv_pools = pools_.data()});
}

void BlockStorage::Prefault(void* pool) {
  const std::vector<char> zeros(kPrefaultPiece);
  const size_t bytes = num_blocks_ * layout_.block_bytes();
  for (size_t at = 0; at < bytes; at += kPrefaultPiece) {
    backend_->CopyToDevice(static_cast<char*>(pool) + at, zeros.data(), std::min(kPrefaultPiece, bytes - at));
  }
}

}  // namespace quire
