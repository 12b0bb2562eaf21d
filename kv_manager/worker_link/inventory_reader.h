// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_INVENTORY_READER_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_INVENTORY_READER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/worker_link/worker_description.h"
#include "kv_manager/worker_link/worker_inventory.h"
#include "quire/v1/worker.pb.h"

namespace quire {

// Joins the chunks of an inventory, and checks each field; whether rows and labels agree is not checked here.
// Errors are INTERNAL and name the field, its value and the limit. After an error the reader is of no use. Not
// thread-safe.
class InventoryReader {
 public:
  // `worker` is what the worker has said about itself.
  explicit InventoryReader(const WorkerDescription& worker);

  // Reads the next chunk. The chunks of a worker that lies need not end, so their bytes are limited.
  absl::Status Add(const v1::InventoryChunk& chunk);
  // Returns whether the last chunk was read. Before that, an inventory is cut off.
  bool is_complete() const { return is_complete_; }
  // Returns the inventory. Call it once. REQUIRES: is_complete().
  WorkerInventory Take() { return std::move(inventory_); }

 private:
  absl::Status ReadHeader(const v1::InventoryHeader& header);
  absl::Status ReadResult(const v1::InventoryResult& in);
  absl::Status ReadRow(const v1::InventoryRow& in);
  absl::Status ReadBlocks(const v1::InventoryRow& in, WorkerInventory::Row* row) const;
  absl::Status ReadScores(const v1::InventoryRow& in, WorkerInventory::Row* row) const;
  absl::Status ReadRoots(const v1::InventoryChunk& chunk);
  absl::Status ReadLabels(const v1::InventoryLabels& in);
  absl::StatusOr<WorkerInventory::Label> ReadLabel(const v1::InventoryLabels& in, int index);
  absl::Status ReadTokens(const char* field, const uint32_t* begin, int64_t count, std::vector<TokenId>* out) const;
  absl::Status Finish();

  const int vocab_size_;
  const int block_size_;
  const uint32_t num_blocks_;
  const uint32_t num_host_blocks_;
  const uint32_t max_sequences_;
  const int max_context_tokens_;
  const std::string layout_id_;
  const bool tells_digest_alone_;  // It is a rank above 0.
  bool has_header_ = false;
  bool is_complete_ = false;
  int64_t num_bytes_ = 0;
  uint32_t num_rows_ = 0;        // From the header.
  uint32_t num_labels_ = 0;      // From the header.
  std::vector<bool> has_label_;  // For each block, first of the pool.
  WorkerInventory inventory_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_INVENTORY_READER_H_
