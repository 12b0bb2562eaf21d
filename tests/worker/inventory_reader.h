// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_INVENTORY_READER_H_
#define QUIRE_TESTS_WORKER_INVENTORY_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "quire/v1/worker.pb.h"

namespace quire {

// An inventory as a test reads it.
struct ReadInventory {
  // What a label says: its root and the tokens of the whole prefix.
  struct Prefix {
    std::string root;
    std::vector<TokenId> tokens;

    bool operator==(const Prefix&) const = default;
  };

  v1::InventoryHeader header;
  std::vector<v1::InventoryResult> results;
  std::map<uint32_t, v1::InventoryRow> rows;
  std::map<uint32_t, Prefix> labels;  // By place.
};

// Puts the chunks together. Wrong chunks fail the test.
ReadInventory Read(const std::vector<v1::InventoryChunk>& chunks);

std::vector<TokenId> TokensOf(const v1::InventoryRow& row);

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_INVENTORY_READER_H_
