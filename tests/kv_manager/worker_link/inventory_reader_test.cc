// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/inventory_reader.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/random.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Chunks = std::vector<v1::InventoryChunk>;

WorkerDescription Worker() {
  WorkerDescription worker;
  worker.vocab_size = 100;
  worker.max_context_tokens = 32;
  worker.block_size = 2;
  worker.num_blocks = 8;
  worker.num_host_blocks = 4;
  worker.max_sequences = 4;
  worker.numerics_fingerprint = "f";
  return worker;
}

// Two steps, row 1 with five tokens of which four are computed, and four labels.
Chunks Good() {
  Chunks chunks(2);
  v1::InventoryHeader* const header = chunks[0].mutable_header();
  header->set_epoch(9);
  header->set_last_step(2);
  header->set_num_blocks(8);
  header->set_num_host_blocks(4);
  header->set_block_size(2);
  header->set_max_sequences(4);
  header->set_layout_id("f/block-2");
  header->set_num_rows(1);
  header->set_num_labels(4);
  for (uint32_t step = 1; step <= 2; ++step) {
    v1::InventoryResult* const result = chunks[0].add_results();
    result->mutable_result()->set_step(step);
    result->mutable_result()->add_token_ids(12 + step);
    result->add_slice_rows(1);
    result->add_slice_sequences(100);
    result->add_slice_first_positions(step == 1 ? 0 : 3);
    result->add_slice_num_tokens(step == 1 ? 3 : 1);
    result->set_slice_samples(std::string(1, 1));
  }
  chunks[0].add_cache_roots("r");
  v1::InventoryRow* const row = chunks[0].add_rows();
  row->set_row(1);
  row->set_sequence(100);
  row->set_prompt_length(3);
  for (uint32_t token : {10, 11, 12, 13, 14}) row->add_token_ids(token);
  row->set_computed_tokens(4);
  row->set_idle_ms(3);
  for (uint32_t block : {6, 2}) row->add_blocks(block);
  row->add_swapped_entries(0);
  row->add_host_blocks(3);
  row->set_record("abc");
  row->set_prompt_length(3);
  row->set_num_logprobs_plus_one(2);
  row->set_num_prompt_logprobs_plus_one(1);
  row->mutable_scores()->add_logprobs(-1);
  row->mutable_scores()->add_ranks(2);
  row->mutable_scores()->add_top_lengths(1);
  row->mutable_scores()->add_top_token_ids(30);
  row->mutable_scores()->add_top_logprobs(-0.5f);
  row->mutable_prompt_scores()->add_logprobs(-2);
  row->mutable_prompt_scores()->add_ranks(3);
  row->mutable_prompt_scores()->add_top_lengths(0);
  row->set_cache_root_plus_one(1);
  v1::InventoryLabels* const labels = chunks[1].mutable_labels();
  const auto add_label = [labels](uint32_t block, uint32_t parent, const std::vector<uint32_t>& tokens) {
    labels->add_blocks(block);
    labels->add_parents_plus_one(parent);
    labels->add_cache_roots(0);
    labels->add_num_tokens(tokens.size());
    labels->mutable_token_ids()->Add(tokens.begin(), tokens.end());
  };
  add_label(6, 0, {10, 11});
  add_label(8 + 3, 0, {10, 11});
  add_label(2, 1, {12, 13});
  add_label(5, 3, {14});
  chunks[1].set_is_last(true);
  return chunks;
}

absl::Status Read(const Chunks& chunks) {
  InventoryReader reader(Worker());
  for (const v1::InventoryChunk& chunk : chunks) {
    const absl::Status status = reader.Add(chunk);
    if (!status.ok()) return status;
  }
  return reader.is_complete() ? absl::OkStatus() : absl::InternalError("cut off");
}

TEST(InventoryReaderTest, AGoodInventoryIsReadWhole) {
  InventoryReader reader(Worker());
  for (const v1::InventoryChunk& chunk : Good()) ASSERT_EQ(reader.Add(chunk), absl::OkStatus());
  ASSERT_TRUE(reader.is_complete());
  const WorkerInventory inventory = reader.Take();
  EXPECT_EQ(inventory.epoch, 9u);
  EXPECT_EQ(inventory.last_step, StepId{2});
  ASSERT_EQ(inventory.results.size(), 2u);
  EXPECT_EQ(inventory.results[1].slices[0].first_position, 3);
  EXPECT_THAT(inventory.roots, ElementsAre("r"));
  ASSERT_EQ(inventory.rows.size(), 1u);
  const WorkerInventory::Row& row = inventory.rows[0];
  EXPECT_EQ(row.row, RowId{1});
  EXPECT_EQ(row.sequence, SequenceId{100});
  EXPECT_FALSE(row.forked_from.has_value());
  EXPECT_THAT(row.tokens, ElementsAre(10, 11, 12, 13, 14));
  EXPECT_EQ(row.num_computed, 4);
  EXPECT_EQ(row.idle_us, 3000);
  EXPECT_THAT(row.blocks, ElementsAre(BlockId{6}, BlockId{2}));
  EXPECT_THAT(row.swapped, ElementsAre(WorkerInventory::SwappedBlock{0, BlockId{3}}));
  EXPECT_EQ(row.record, "abc");
  EXPECT_EQ(row.root, 0);
  EXPECT_EQ(row.num_logprobs, 1);
  EXPECT_EQ(row.num_prompt_logprobs, 0);
  EXPECT_EQ(row.num_candidates, 0);
  EXPECT_THAT(row.scores, ElementsAre(ScoredToken{13, -1, 2, {{30, -0.5f}}}));
  EXPECT_THAT(row.prompt_scores, ElementsAre(ScoredToken{11, -2, 3, {}}));
  ASSERT_EQ(inventory.labels.size(), 4u);
  EXPECT_TRUE(inventory.labels[1].is_host);
  EXPECT_EQ(inventory.labels[1].block, BlockId{3});
  EXPECT_EQ(inventory.labels[2].parent, 0);
  EXPECT_THAT(inventory.labels[3].tokens, ElementsAre(14));
}

struct BadInventory {
  std::string message;  // Part of the error.
  std::function<void(Chunks*)> spoil;
};

TEST(InventoryReaderTest, EveryBadInventoryIsRefusedByName) {
  const auto header = [](Chunks* chunks) { return (*chunks)[0].mutable_header(); };
  const auto row = [](Chunks* chunks) { return (*chunks)[0].mutable_rows(0); };
  const auto labels = [](Chunks* chunks) { return (*chunks)[1].mutable_labels(); };
  const std::vector<BadInventory> bad = {
      {"cut off", [](Chunks* c) { c->pop_back(); }},
      {"does not begin with a header", [](Chunks* c) { c->erase(c->begin()); }},
      {"has two headers", [](Chunks* c) { *(*c)[1].mutable_header() = (*c)[0].header(); }},
      {"a chunk is empty", [](Chunks* c) { c->insert(c->begin() + 1, v1::InventoryChunk()); }},
      {"a chunk follows the last one", [](Chunks* c) { c->push_back(c->back()); }},
      {"num_blocks is 9, expected 8", [&](Chunks* c) { header(c)->set_num_blocks(9); }},
      {"block_size is 1, expected 2", [&](Chunks* c) { header(c)->set_block_size(1); }},
      {"layout_id is \"g\", expected \"f/block-2\"", [&](Chunks* c) { header(c)->set_layout_id("g"); }},
      {"num_labels is 13, the limit is 12", [&](Chunks* c) { header(c)->set_num_labels(13); }},
      {"the number of rows is 1, expected 2", [&](Chunks* c) { header(c)->set_num_rows(2); }},
      {"the number of labels is 4, expected 3", [&](Chunks* c) { header(c)->set_num_labels(3); }},
      {"the number of results is 2, expected 1", [&](Chunks* c) { header(c)->set_last_step(1); }},
      {"results.step is 1, expected 2", [&](Chunks* c) { header(c)->set_last_step(3); }},
      {"the number of results is 3, the limit is 2",
       [](Chunks* c) { *(*c)[0].add_results() = v1::InventoryResult((*c)[0].results(0)); }},
      {"an entry of results.slice_rows is 4, it must be below 4",
       [](Chunks* c) { (*c)[0].mutable_results(0)->set_slice_rows(0, 4); }},
      {"the length of results.slice_samples is 0, expected 1",
       [](Chunks* c) { (*c)[0].mutable_results(0)->clear_slice_samples(); }},
      {"the end of a slice of results is 4294967295, the limit is 32",
       [](Chunks* c) { (*c)[0].mutable_results(1)->set_slice_first_positions(0, 0xfffffffe); }},
      {"cache_roots has an entry twice", [](Chunks* c) { (*c)[1].add_cache_roots("r"); }},
      {"rows.row is 4, it must be below 4", [&](Chunks* c) { row(c)->set_row(4); }},
      {"rows.row is 1 after 1", [](Chunks* c) { *(*c)[0].add_rows() = v1::InventoryRow((*c)[0].rows(0)); }},
      {"rows.token_ids of row 1 is empty", [&](Chunks* c) { row(c)->clear_token_ids(); }},
      {"rows.token_ids is 100, it must be below 100", [&](Chunks* c) { row(c)->set_token_ids(0, 100); }},
      {"the length of rows.token_ids is 34, the limit is 33",
       [&](Chunks* c) { row(c)->mutable_token_ids()->Resize(34, 1); }},
      {"rows.prompt_length is 6, the limit is 5", [&](Chunks* c) { row(c)->set_prompt_length(6); }},
      {"rows.computed_tokens is 6, the limit is 5", [&](Chunks* c) { row(c)->set_computed_tokens(6); }},
      {"the number of blocks of rows.computed_tokens is 3, the limit is 2",
       [&](Chunks* c) { row(c)->set_computed_tokens(5); }},
      {"an entry of rows.blocks is 8, it must be below 8", [&](Chunks* c) { row(c)->set_blocks(1, 8); }},
      {"an entry of rows.swapped_entries is 2, it must be below 2",
       [&](Chunks* c) { row(c)->set_swapped_entries(0, 2); }},
      {"an entry of rows.host_blocks is 4, it must be below 4", [&](Chunks* c) { row(c)->set_host_blocks(0, 4); }},
      {"the size of rows.record is 65537", [&](Chunks* c) { row(c)->set_record(std::string(65537, 'x')); }},
      {"rows.cache_root_plus_one is 2, the limit is 1", [&](Chunks* c) { row(c)->set_cache_root_plus_one(2); }},
      {"rows.num_logprobs_plus_one is 1026, the limit is 1025",
       [&](Chunks* c) { row(c)->set_num_logprobs_plus_one(1026); }},
      {"rows.num_candidates is 1025, the limit is 1024", [&](Chunks* c) { row(c)->set_num_candidates(1025); }},
      {"rows.scores is 3, the limit is 2",
       [&](Chunks* c) { row(c)->mutable_scores()->mutable_logprobs()->Resize(3, 0); }},
      {"rows.scores is 1, the limit is 0", [&](Chunks* c) { row(c)->set_num_logprobs_plus_one(0); }},
      {"rows.scores.ranks: length 0, expected 1", [&](Chunks* c) { row(c)->mutable_scores()->clear_ranks(); }},
      {"rows.scores.top_token_ids 100, expected less than 100",
       [&](Chunks* c) { row(c)->mutable_scores()->set_top_token_ids(0, 100); }},
      {"rows.scores.top_lengths 1, expected at most 0", [&](Chunks* c) { row(c)->set_num_logprobs_plus_one(1); }},
      {"rows.prompt_scores is 3, the limit is 2",
       [&](Chunks* c) { row(c)->mutable_prompt_scores()->mutable_logprobs()->Resize(3, 0); }},
      {"labels.blocks has 6 twice", [&](Chunks* c) { labels(c)->set_blocks(1, 6); }},
      {"an entry of labels.blocks is 12, it must be below 12", [&](Chunks* c) { labels(c)->set_blocks(1, 12); }},
      {"an entry of labels.parents_plus_one is 3, the limit is 2",
       [&](Chunks* c) { labels(c)->set_parents_plus_one(2, 3); }},
      {"an entry of labels.cache_roots is 1, it must be below 1", [&](Chunks* c) { labels(c)->set_cache_roots(0, 1); }},
      {"the length of labels.token_ids is 6, expected 7",
       [&](Chunks* c) { labels(c)->mutable_token_ids()->RemoveLast(); }},
      {"the number of tokens of a parent is 1, expected 2",
       [&](Chunks* c) {
         labels(c)->set_num_tokens(2, 1);
         labels(c)->mutable_token_ids()->RemoveLast();
       }},
  };
  for (const BadInventory& one : bad) {
    Chunks chunks = Good();
    one.spoil(&chunks);
    const absl::Status status = Read(chunks);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << one.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.message));
  }
}

// Bytes of a good inventory are changed at random. The reader accepts or refuses each result, and what it accepts is in
// range. The sanitizers run this test.
TEST(InventoryReaderTest, NoBytesCrashTheReader) {
  const google::protobuf::LogSilencer silencer;
  int num_refused = 0;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    Random random(seed);
    Chunks chunks = Good();
    bool is_parsed = true;
    for (int i = random.Between(1, 3); i > 0; --i) {
      v1::InventoryChunk& chunk = chunks[random.Below(2)];
      std::string bytes = chunk.SerializeAsString();
      if (bytes.empty()) continue;
      if (random.OneIn(8)) bytes.resize(random.Below(static_cast<int>(bytes.size())));
      if (!bytes.empty()) bytes[random.Below(static_cast<int>(bytes.size()))] = static_cast<char>(random.Below(256));
      is_parsed = is_parsed && chunk.ParseFromString(bytes);
    }
    if (!is_parsed) continue;
    InventoryReader reader(Worker());
    absl::Status status;
    for (size_t i = 0; i < chunks.size() && status.ok(); ++i) status = reader.Add(chunks[i]);
    if (!status.ok() || !reader.is_complete()) {
      ++num_refused;
      continue;
    }
    const WorkerInventory inventory = reader.Take();
    for (const WorkerInventory::Label& label : inventory.labels) {
      ASSERT_LT(Value(label.block), label.is_host ? 4u : 8u) << "seed " << seed;
      ASSERT_LT(label.parent.value_or(-1), static_cast<int>(inventory.labels.size())) << "seed " << seed;
    }
    for (const WorkerInventory::Row& row : inventory.rows) {
      ASSERT_LE(row.num_computed, static_cast<int>(2 * row.blocks.size())) << "seed " << seed;
    }
  }
  EXPECT_GT(num_refused, 1000);
}

TEST(InventoryReaderTest, RankAboveZeroTellsADigestAlone) {
  WorkerDescription worker = Worker();
  worker.place = {.group_id = "g", .rank = 1, .size = 2};
  v1::InventoryChunk chunk;
  *chunk.mutable_header() = Good()[0].header();
  chunk.mutable_header()->set_digest(77);
  chunk.mutable_header()->set_num_rows(0);
  chunk.mutable_header()->set_num_labels(0);
  chunk.set_is_last(true);
  InventoryReader reader(worker);
  ASSERT_EQ(reader.Add(chunk), absl::OkStatus());
  ASSERT_TRUE(reader.is_complete());
  const WorkerInventory inventory = reader.Take();
  EXPECT_EQ(inventory.epoch, 9u);
  EXPECT_EQ(inventory.last_step, StepId{2});
  EXPECT_EQ(inventory.digest, 77u);
  EXPECT_EQ(Read({chunk}).code(), absl::StatusCode::kInternal) << "rank 0 tells its last results";
  InventoryReader strict(worker);
  *chunk.mutable_results() = Good()[0].results();
  EXPECT_EQ(strict.Add(chunk).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace quire
