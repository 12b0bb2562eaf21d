// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/inventory_reader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/num_blocks.h"
#include "base/status.h"
#include "base/worker_protocol.h"
#include "kv_manager/worker_link/score_columns.h"

namespace quire {
namespace {

// Results come on top of the limit of the inventory.
constexpr int64_t kMaxBytes = kMaxInventoryBytes + int64_t{kMaxPlansInFlight} * kMaxWorkerMessageBytes;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("the worker's inventory is wrong: ", parts...));
}

absl::Status CheckEqual(const char* field, uint64_t value, uint64_t expected) {
  if (value == expected) return absl::OkStatus();
  return Bad(field, " is ", value, ", expected ", expected);
}

absl::Status CheckBelow(const char* field, uint64_t value, uint64_t limit) {
  if (value < limit) return absl::OkStatus();
  return Bad(field, " is ", value, ", it must be below ", limit);
}

absl::Status CheckAtMost(const char* field, uint64_t value, uint64_t limit) {
  if (value <= limit) return absl::OkStatus();
  return Bad(field, " is ", value, ", the limit is ", limit);
}

}  // namespace

InventoryReader::InventoryReader(const WorkerDescription& worker)
    : vocab_size_(worker.vocab_size),
      block_size_(worker.block_size),
      num_blocks_(worker.num_blocks),
      num_host_blocks_(worker.num_host_blocks),
      max_sequences_(worker.max_sequences),
      max_context_tokens_(worker.max_context_tokens),
      layout_id_(absl::StrCat(worker.numerics_fingerprint, "/block-", worker.block_size)),
      tells_digest_alone_(worker.place.rank > 0),
      has_label_(size_t{num_blocks_} + num_host_blocks_) {}

absl::Status InventoryReader::Add(const v1::InventoryChunk& chunk) {
  if (is_complete_) return Bad("a chunk follows the last one");
  if (chunk.has_header() == has_header_)
    return Bad(has_header_ ? "it has two headers" : "it does not begin with a header");
  const int64_t num_bytes = static_cast<int64_t>(chunk.ByteSizeLong());
  // Every chunk has something in it, so the number of chunks is limited too.
  if (num_bytes == 0) return Bad("a chunk is empty");
  num_bytes_ += num_bytes;
  QUIRE_RETURN_IF_ERROR(CheckAtMost("the sum of the bytes", num_bytes_, kMaxBytes));
  if (chunk.has_header()) QUIRE_RETURN_IF_ERROR(ReadHeader(chunk.header()));
  QUIRE_RETURN_IF_ERROR(ReadRoots(chunk));
  for (const v1::InventoryResult& result : chunk.results()) QUIRE_RETURN_IF_ERROR(ReadResult(result));
  for (const v1::InventoryRow& row : chunk.rows()) QUIRE_RETURN_IF_ERROR(ReadRow(row));
  QUIRE_RETURN_IF_ERROR(ReadLabels(chunk.labels()));
  return chunk.is_last() ? Finish() : absl::OkStatus();
}

absl::Status InventoryReader::ReadHeader(const v1::InventoryHeader& header) {
  has_header_ = true;
  QUIRE_RETURN_IF_ERROR(CheckEqual("num_blocks", header.num_blocks(), num_blocks_));
  QUIRE_RETURN_IF_ERROR(CheckEqual("num_host_blocks", header.num_host_blocks(), num_host_blocks_));
  QUIRE_RETURN_IF_ERROR(CheckEqual("block_size", header.block_size(), block_size_));
  QUIRE_RETURN_IF_ERROR(CheckEqual("max_sequences", header.max_sequences(), max_sequences_));
  if (header.layout_id() != layout_id_) {
    return Bad("layout_id is \"", header.layout_id().substr(0, 256), "\", expected \"", layout_id_, "\"");
  }
  QUIRE_RETURN_IF_ERROR(CheckAtMost("num_rows", header.num_rows(), max_sequences_));
  QUIRE_RETURN_IF_ERROR(CheckAtMost("num_labels", header.num_labels(), has_label_.size()));
  QUIRE_RETURN_IF_ERROR(CheckAtMost("num_left_out", header.num_left_out(), has_label_.size() + max_sequences_));
  num_rows_ = header.num_rows();
  num_labels_ = header.num_labels();
  inventory_.epoch = header.epoch();
  inventory_.last_step = StepId{header.last_step()};
  inventory_.digest = header.digest();
  inventory_.num_left_out = static_cast<int>(header.num_left_out());
  return absl::OkStatus();
}

absl::Status InventoryReader::ReadRoots(const v1::InventoryChunk& chunk) {
  for (const std::string& root : chunk.cache_roots()) {
    QUIRE_RETURN_IF_ERROR(CheckAtMost("the size of an entry of cache_roots", root.size(), kMaxCacheRootBytes));
    inventory_.roots.push_back(root);
  }
  // Each root was named by a row or by a label.
  return CheckAtMost("the number of cache_roots", inventory_.roots.size(), has_label_.size() + max_sequences_);
}

absl::Status InventoryReader::ReadResult(const v1::InventoryResult& in) {
  QUIRE_RETURN_IF_ERROR(CheckAtMost("the number of results", inventory_.results.size() + 1, kMaxPlansInFlight));
  const int num_slices = in.slice_rows_size();
  QUIRE_RETURN_IF_ERROR(CheckAtMost("the length of results.slice_rows", num_slices, max_sequences_));
  QUIRE_RETURN_IF_ERROR(CheckEqual("the length of results.slice_sequences", in.slice_sequences_size(), num_slices));
  QUIRE_RETURN_IF_ERROR(
      CheckEqual("the length of results.slice_first_positions", in.slice_first_positions_size(), num_slices));
  QUIRE_RETURN_IF_ERROR(CheckEqual("the length of results.slice_num_tokens", in.slice_num_tokens_size(), num_slices));
  QUIRE_RETURN_IF_ERROR(CheckEqual("the length of results.slice_samples", in.slice_samples().size(), num_slices));
  WorkerInventory::Result& result = inventory_.results.emplace_back();
  result.step = StepId{in.result().step()};
  for (int i = 0; i < num_slices; ++i) {
    QUIRE_RETURN_IF_ERROR(CheckBelow("an entry of results.slice_rows", in.slice_rows(i), max_sequences_));
    QUIRE_RETURN_IF_ERROR(CheckAtMost("the end of a slice of results",
                                      uint64_t{in.slice_first_positions(i)} + in.slice_num_tokens(i),
                                      max_context_tokens_));
    result.slices.push_back({.row = RowId{in.slice_rows(i)},
                             .sequence = SequenceId{in.slice_sequences(i)},
                             .first_position = static_cast<int>(in.slice_first_positions(i)),
                             .num_tokens = static_cast<int>(in.slice_num_tokens(i)),
                             .samples = in.slice_samples()[i] != 0});
  }
  return absl::OkStatus();
}

absl::Status InventoryReader::ReadTokens(const char* field, const uint32_t* begin, int64_t count,
                                         std::vector<TokenId>* out) const {
  out->reserve(count);
  for (const uint32_t* token = begin; token != begin + count; ++token) {
    QUIRE_RETURN_IF_ERROR(CheckBelow(field, *token, vocab_size_));
    out->push_back(static_cast<TokenId>(*token));
  }
  return absl::OkStatus();
}

absl::Status InventoryReader::ReadRow(const v1::InventoryRow& in) {
  QUIRE_RETURN_IF_ERROR(CheckBelow("rows.row", in.row(), max_sequences_));
  if (!inventory_.rows.empty() && in.row() <= Value(inventory_.rows.back().row)) {
    return Bad("rows.row is ", in.row(), " after ", Value(inventory_.rows.back().row));
  }
  WorkerInventory::Row row;
  row.row = RowId{in.row()};
  row.sequence = SequenceId{in.sequence()};
  if (in.has_forked_from()) row.forked_from = SequenceId{in.forked_from()};
  row.sample_index = in.sample_index();
  if (in.token_ids().empty()) return Bad("rows.token_ids of row ", in.row(), " is empty");
  // A row may have drawn one token beyond the context.
  QUIRE_RETURN_IF_ERROR(
      CheckAtMost("the length of rows.token_ids", in.token_ids_size(), uint64_t{1} + max_context_tokens_));
  QUIRE_RETURN_IF_ERROR(ReadTokens("rows.token_ids", in.token_ids().data(), in.token_ids_size(), &row.tokens));
  if (in.prompt_length() == 0) return Bad("rows.prompt_length of row ", in.row(), " is 0");
  QUIRE_RETURN_IF_ERROR(CheckAtMost("rows.prompt_length", in.prompt_length(), row.tokens.size()));
  QUIRE_RETURN_IF_ERROR(CheckAtMost("rows.computed_tokens", in.computed_tokens(), row.tokens.size()));
  row.prompt_length = static_cast<int>(in.prompt_length());
  row.num_computed = static_cast<int>(in.computed_tokens());
  row.idle_us = int64_t{in.idle_ms()} * 1000;
  QUIRE_RETURN_IF_ERROR(ReadBlocks(in, &row));
  QUIRE_RETURN_IF_ERROR(CheckAtMost("the size of rows.record", in.record().size(), kMaxRecordBytes));
  row.record = in.record();
  QUIRE_RETURN_IF_ERROR(CheckAtMost("rows.cache_root_plus_one", in.cache_root_plus_one(), inventory_.roots.size()));
  if (in.cache_root_plus_one() > 0) row.root = static_cast<int>(in.cache_root_plus_one()) - 1;
  QUIRE_RETURN_IF_ERROR(ReadScores(in, &row));
  inventory_.rows.push_back(std::move(row));
  return absl::OkStatus();
}

absl::Status InventoryReader::ReadScores(const v1::InventoryRow& in, WorkerInventory::Row* row) const {
  QUIRE_RETURN_IF_ERROR(CheckAtMost("rows.num_logprobs_plus_one", in.num_logprobs_plus_one(), kMaxTopLogprobs + 1));
  QUIRE_RETURN_IF_ERROR(
      CheckAtMost("rows.num_prompt_logprobs_plus_one", in.num_prompt_logprobs_plus_one(), kMaxTopLogprobs + 1));
  QUIRE_RETURN_IF_ERROR(CheckAtMost("rows.num_candidates", in.num_candidates(), kMaxCandidates));
  row->num_logprobs = static_cast<int>(in.num_logprobs_plus_one()) - 1;
  row->num_prompt_logprobs = static_cast<int>(in.num_prompt_logprobs_plus_one()) - 1;
  row->num_candidates = static_cast<int>(in.num_candidates());
  const auto read = [this, row](const char* name, const v1::ScoreColumns& columns, int num_logprobs, int first, int end,
                                std::vector<ScoredToken>* out) -> absl::Status {
    const int count = columns.logprobs_size();
    const int limit = num_logprobs < 0 ? 0 : end - first;
    QUIRE_RETURN_IF_ERROR(CheckAtMost(name, static_cast<uint64_t>(count), static_cast<uint64_t>(limit)));
    ScoreReader reader(columns, name, static_cast<int>(vocab_size_));
    QUIRE_RETURN_IF_ERROR(reader.CheckColumns(count));
    for (int i = 0; i < count; ++i) {
      out->push_back({.token = row->tokens[first + i], .logprob = 0, .rank = 0, .top = {}});
      QUIRE_RETURN_IF_ERROR(reader.Next(num_logprobs, &out->back()));
    }
    return absl::OkStatus();
  };
  QUIRE_RETURN_IF_ERROR(read("rows.scores", in.scores(), row->num_logprobs, row->prompt_length,
                             static_cast<int>(row->tokens.size()), &row->scores));
  return read("rows.prompt_scores", in.prompt_scores(), row->num_prompt_logprobs, 1, row->prompt_length,
              &row->prompt_scores);
}

absl::Status InventoryReader::ReadBlocks(const v1::InventoryRow& in, WorkerInventory::Row* row) const {
  QUIRE_RETURN_IF_ERROR(CheckAtMost("the length of rows.blocks", in.blocks_size(), num_blocks_));
  for (const uint32_t block : in.blocks()) {
    QUIRE_RETURN_IF_ERROR(CheckBelow("an entry of rows.blocks", block, num_blocks_));
    row->blocks.push_back(BlockId{block});
  }
  QUIRE_RETURN_IF_ERROR(CheckAtMost("the number of blocks of rows.computed_tokens",
                                    NumBlocksFor(row->num_computed, block_size_), row->blocks.size()));
  QUIRE_RETURN_IF_ERROR(CheckEqual("the length of rows.host_blocks", in.host_blocks_size(), in.swapped_entries_size()));
  for (int i = 0; i < in.swapped_entries_size(); ++i) {
    QUIRE_RETURN_IF_ERROR(CheckBelow("an entry of rows.swapped_entries", in.swapped_entries(i), row->blocks.size()));
    QUIRE_RETURN_IF_ERROR(CheckBelow("an entry of rows.host_blocks", in.host_blocks(i), num_host_blocks_));
    if (i > 0 && in.swapped_entries(i) <= in.swapped_entries(i - 1)) {
      return Bad("rows.swapped_entries[", i, "] is ", in.swapped_entries(i), " after ", in.swapped_entries(i - 1));
    }
    row->swapped.push_back({static_cast<int>(in.swapped_entries(i)), BlockId{in.host_blocks(i)}});
  }
  return absl::OkStatus();
}

absl::Status InventoryReader::ReadLabels(const v1::InventoryLabels& in) {
  const int count = in.blocks_size();
  QUIRE_RETURN_IF_ERROR(CheckEqual("the length of labels.parents_plus_one", in.parents_plus_one_size(), count));
  QUIRE_RETURN_IF_ERROR(CheckEqual("the length of labels.cache_roots", in.cache_roots_size(), count));
  QUIRE_RETURN_IF_ERROR(CheckEqual("the length of labels.num_tokens", in.num_tokens_size(), count));
  uint64_t num_tokens = 0;
  for (const uint32_t length : in.num_tokens()) num_tokens += length;
  QUIRE_RETURN_IF_ERROR(CheckEqual("the length of labels.token_ids", in.token_ids_size(), num_tokens));
  const uint32_t* tokens = in.token_ids().data();
  for (int i = 0; i < count; ++i) {
    absl::StatusOr<WorkerInventory::Label> label = ReadLabel(in, i);
    if (!label.ok()) return label.status();
    QUIRE_RETURN_IF_ERROR(ReadTokens("labels.token_ids", tokens, in.num_tokens(i), &label->tokens));
    tokens += in.num_tokens(i);
    inventory_.labels.push_back(*std::move(label));
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerInventory::Label> InventoryReader::ReadLabel(const v1::InventoryLabels& in, int index) {
  const uint32_t place = in.blocks(index);
  QUIRE_RETURN_IF_ERROR(CheckBelow("an entry of labels.blocks", place, has_label_.size()));
  if (has_label_[place]) return Bad("labels.blocks has ", place, " twice");
  has_label_[place] = true;
  const bool is_host = place >= num_blocks_;
  WorkerInventory::Label label;
  label.block = BlockId{is_host ? place - num_blocks_ : place};
  label.is_host = is_host;
  QUIRE_RETURN_IF_ERROR(CheckBelow("an entry of labels.cache_roots", in.cache_roots(index), inventory_.roots.size()));
  label.root = static_cast<int>(in.cache_roots(index));
  if (in.num_tokens(index) == 0) return Bad("an entry of labels.num_tokens is 0");
  QUIRE_RETURN_IF_ERROR(CheckAtMost("an entry of labels.num_tokens", in.num_tokens(index), block_size_));
  if (in.parents_plus_one(index) == 0) return label;
  QUIRE_RETURN_IF_ERROR(
      CheckAtMost("an entry of labels.parents_plus_one", in.parents_plus_one(index), inventory_.labels.size()));
  label.parent = static_cast<int>(in.parents_plus_one(index)) - 1;
  const WorkerInventory::Label& parent = inventory_.labels[*label.parent];
  QUIRE_RETURN_IF_ERROR(CheckEqual("the number of tokens of a parent", parent.tokens.size(), block_size_));
  QUIRE_RETURN_IF_ERROR(CheckEqual("an entry of labels.cache_roots", label.root, parent.root));
  return label;
}

absl::Status InventoryReader::Finish() {
  QUIRE_RETURN_IF_ERROR(CheckEqual("the number of rows", inventory_.rows.size(), num_rows_));
  QUIRE_RETURN_IF_ERROR(CheckEqual("the number of labels", inventory_.labels.size(), num_labels_));
  const uint64_t last_step = Value(inventory_.last_step);
  const size_t num_results = inventory_.results.size();
  if (tells_digest_alone_) {
    QUIRE_RETURN_IF_ERROR(CheckEqual("the number of rows of a rank above 0", num_rows_, 0));
    QUIRE_RETURN_IF_ERROR(CheckEqual("the number of labels of a rank above 0", num_labels_, 0));
    QUIRE_RETURN_IF_ERROR(CheckEqual("the number of results of a rank above 0", num_results, 0));
    is_complete_ = true;
    return absl::OkStatus();
  }
  QUIRE_RETURN_IF_ERROR(
      CheckEqual("the number of results", num_results, std::min<uint64_t>(last_step, kMaxPlansInFlight)));
  for (size_t i = 0; i < num_results; ++i) {
    QUIRE_RETURN_IF_ERROR(
        CheckEqual("results.step", Value(inventory_.results[i].step), last_step - (num_results - 1 - i)));
  }
  std::vector<std::string> roots = inventory_.roots;
  std::sort(roots.begin(), roots.end());
  if (std::adjacent_find(roots.begin(), roots.end()) != roots.end()) return Bad("cache_roots has an entry twice");
  is_complete_ = true;
  return absl::OkStatus();
}

}  // namespace quire
