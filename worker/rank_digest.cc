// SPDX-License-Identifier: Apache-2.0

#include "worker/rank_digest.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/fingerprint.h"

namespace quire {
namespace {

// Digests the columns of all chunks together.
class InventoryDigest {
 public:
  explicit InventoryDigest(const v1::InventoryHeader& header) : num_blocks_(header.num_blocks()) {
    v1::InventoryHeader steps;
    steps.set_epoch(header.epoch());
    steps.set_last_step(header.last_step());
    steps.set_num_left_out(header.num_left_out());
    digest_.Add(steps.SerializeAsString());
  }

  void Add(const v1::InventoryChunk& chunk) {
    for (v1::InventoryResult result : chunk.results()) {
      result.mutable_result()->clear_duration_us();
      results_.Add(result.SerializeAsString());
    }
    for (v1::InventoryRow row : chunk.rows()) {
      row.clear_idle_ms();
      rows_.Add(row.SerializeAsString());
    }
    for (const std::string& root : chunk.cache_roots()) roots_.Add(root);
    const v1::InventoryLabels& labels = chunk.labels();
    const uint32_t* tokens = labels.token_ids().data();
    for (int i = 0; i < labels.blocks_size(); ++i) {
      const uint32_t block = labels.blocks(i);
      const bool is_host = block >= num_blocks_;
      const uint32_t numbers[] = {is_host, is_host ? block - num_blocks_ : block, labels.parents_plus_one(i),
                                  labels.cache_roots(i)};
      labels_.Add({reinterpret_cast<const char*>(numbers), sizeof(numbers)});
      labels_.Add({reinterpret_cast<const char*>(tokens), labels.num_tokens(i) * sizeof(uint32_t)});
      tokens += labels.num_tokens(i);
    }
  }

  uint64_t Finish() {
    for (const Fingerprint* part : {&results_, &rows_, &roots_, &labels_}) digest_.Add(part->Hex());
    return digest_.Low();
  }

 private:
  const uint32_t num_blocks_;
  Fingerprint digest_;
  Fingerprint results_;
  Fingerprint rows_;
  Fingerprint roots_;
  Fingerprint labels_;
};

}  // namespace

void SetDigest(v1::StepResult* result) {
  const uint32_t duration_us = result->duration_us();
  result->clear_duration_us();
  result->clear_digest();
  Fingerprint digest;
  digest.Add(result->SerializeAsString());
  result->set_digest(digest.Low());
  result->set_duration_us(duration_us);
}

void KeepDigestAlone(v1::StepResult* result) {
  v1::StepResult alone;
  alone.set_step(result->step());
  alone.set_digest(result->digest());
  alone.set_duration_us(result->duration_us());
  *result = std::move(alone);
}

void SetDigest(int rank, std::vector<v1::InventoryChunk>* inventory) {
  if (inventory->empty()) return;
  InventoryDigest digest(inventory->front().header());
  for (const v1::InventoryChunk& chunk : *inventory) digest.Add(chunk);
  v1::InventoryHeader header = inventory->front().header();
  header.set_digest(digest.Finish());
  if (rank > 0) {
    header.set_num_rows(0);
    header.set_num_labels(0);
    *inventory = std::vector<v1::InventoryChunk>(1);
    inventory->front().set_is_last(true);
  }
  *inventory->front().mutable_header() = std::move(header);
}

}  // namespace quire
