// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/inventory_reader.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

void ReadLabels(const v1::InventoryLabels& in, const std::vector<std::string>& roots,
                std::vector<ReadInventory::Prefix>* all, ReadInventory* out) {
  auto token = in.token_ids().begin();
  for (int i = 0; i < in.blocks_size(); ++i) {
    ReadInventory::Prefix prefix{roots.at(in.cache_roots(i)), {}};
    if (in.parents_plus_one(i) > 0) {
      prefix.tokens = all->at(in.parents_plus_one(i) - 1).tokens;
      EXPECT_EQ(all->at(in.parents_plus_one(i) - 1).root, prefix.root);
      EXPECT_EQ(prefix.tokens.size() % out->header.block_size(), 0u);
    }
    prefix.tokens.insert(prefix.tokens.end(), token, token + in.num_tokens(i));
    token += in.num_tokens(i);
    all->push_back(prefix);
    EXPECT_TRUE(out->labels.emplace(in.blocks(i), prefix).second);
  }
  EXPECT_TRUE(token == in.token_ids().end());
}

}  // namespace

ReadInventory Read(const std::vector<v1::InventoryChunk>& chunks) {
  ReadInventory out;
  std::vector<std::string> roots;
  std::vector<ReadInventory::Prefix> all;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const v1::InventoryChunk& chunk = chunks[i];
    EXPECT_EQ(chunk.has_header(), i == 0);
    EXPECT_EQ(chunk.is_last(), i + 1 == chunks.size());
    if (i == 0) out.header = chunk.header();
    out.results.insert(out.results.end(), chunk.results().begin(), chunk.results().end());
    roots.insert(roots.end(), chunk.cache_roots().begin(), chunk.cache_roots().end());
    for (const v1::InventoryRow& row : chunk.rows()) EXPECT_TRUE(out.rows.emplace(row.row(), row).second);
    ReadLabels(chunk.labels(), roots, &all, &out);
  }
  EXPECT_EQ(out.header.num_rows(), out.rows.size());
  EXPECT_EQ(out.header.num_labels(), out.labels.size());
  return out;
}

std::vector<TokenId> TokensOf(const v1::InventoryRow& row) {
  return {row.token_ids().begin(), row.token_ids().end()};
}

}  // namespace quire
