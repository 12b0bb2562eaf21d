#ifndef QUIRE_WORKER_BLOCK_STORAGE_H_
#define QUIRE_WORKER_BLOCK_STORAGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace quire {

// The physical pool: K and V of all blocks, one array per layer, in the backend's memory; and the host tier, blocks of
// the same shape in the host's memory, to which blocks of the pool can be swapped. Knows nothing of who uses a block;
// that is the manager's. Owned by the executor thread.
class BlockStorage {
 public:
  // Takes the memory, zeroed, or nothing. The host commits a page when it is first written: a pool larger than the
  // memory fails late, in the middle of serving. With `prefault` every page of the pool is written now. Without host
  // blocks there is no host tier. `backend` must outlive the storage.
  static absl::StatusOr<std::unique_ptr<BlockStorage>> Create(Backend* backend, const KvLayout& layout,
                                                              uint32_t num_blocks, uint32_t num_host_blocks,
                                                              bool prefault);
  ~BlockStorage();

  BlockStorage(const BlockStorage&) = delete;
  BlockStorage& operator=(const BlockStorage&) = delete;

  // Copies whole blocks, all layers. REQUIRES: ids below num_blocks, no block both source and destination, all
  // destinations different.
  void Copy(const uint32_t* sources, const uint32_t* destinations, int num_copies);

  // Copies whole blocks, all layers, from the pool to the host tier and back. REQUIRES: ids below num_blocks and
  // num_host_blocks, all destinations different.
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
  // Writes zeros over a layer's pool, a piece at a time.
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
