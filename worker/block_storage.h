// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_BLOCK_STORAGE_H_
#define QUIRE_WORKER_BLOCK_STORAGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace quire {

// The memory for KV blocks. The pool has K and V of all blocks in the backend's memory, in one array per layer. The
// host tier has blocks of the same shape in host memory, to which blocks of the pool can be swapped. Only the manager
// knows which sequence uses a block. Owned by the executor thread.
class BlockStorage {
 public:
  // Allocates zeroed memory for all blocks, or returns an error. An operating system commits a page only when it is
  // first written, so a pool that is larger than the memory would fail later, while the worker serves. If `prefault` is
  // true, every page of the pool is written now. If num_host_blocks is 0, there is no host tier. `backend` must outlive
  // the storage.
  static absl::StatusOr<std::unique_ptr<BlockStorage>> Create(Backend* backend, const KvLayout& layout,
                                                              uint32_t num_blocks, uint32_t num_host_blocks,
                                                              bool prefault);
  ~BlockStorage();

  BlockStorage(const BlockStorage&) = delete;
  BlockStorage& operator=(const BlockStorage&) = delete;

  // Copies whole blocks in all layers. REQUIRES: all ids are below num_blocks, no block is both source and destination,
  // and all destinations are different.
  void Copy(const uint32_t* sources, const uint32_t* destinations, int num_copies);

  // Copies whole blocks in all layers from the pool to the host tier, and back. REQUIRES: all ids are below num_blocks
  // and num_host_blocks, and all destinations are different.
  void SwapOut(const uint32_t* blocks, const uint32_t* host_blocks, int num_swaps);
  void SwapIn(const uint32_t* host_blocks, const uint32_t* blocks, int num_swaps);

  const KvLayout& layout() const { return layout_; }
  uint32_t num_blocks() const { return num_blocks_; }
  uint32_t num_host_blocks() const { return num_host_blocks_; }
  size_t pool_bytes() const { return num_blocks_ * layout_.block_bytes_all_layers(); }
  size_t host_bytes() const { return num_host_blocks_ * layout_.block_bytes_all_layers(); }
  void* const* pools() const { return pools_.data(); }  // [num_layers], each [num_blocks] blocks of the layout.

 private:
  BlockStorage(Backend* backend, const KvLayout& layout, uint32_t num_blocks, uint32_t num_host_blocks);

  void Swap(SwapDirection direction, const uint32_t* blocks, const uint32_t* host_blocks, int num_swaps);
  // Writes zeros to the pool of one layer, piece by piece.
  void Prefault(void* pool);

  Backend* const backend_;
  const KvLayout layout_;
  const uint32_t num_blocks_;
  const uint32_t num_host_blocks_;
  std::vector<void*> pools_;
  void* host_pool_ = nullptr;
};

}  // namespace quire

#endif  // QUIRE_WORKER_BLOCK_STORAGE_H_
