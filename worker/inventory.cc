// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace quire {
namespace {

// The bytes of a label without its tokens: four columns of four bytes, and its share of a chunk.
constexpr int64_t kLabelBytes = 18;

// Fills chunks one after the other.
class ChunkWriter {
 public:
  ChunkWriter(const BlockLabels& labels, const WorkerLimits& worker, const std::string& layout_id,
              const InventoryLimits& limits, int64_t session_end_us)
      : labels_(labels), limits_(limits), session_end_us_(session_end_us), chunks_(1) {
    v1::InventoryHeader* const header = chunks_[0].mutable_header();
    header->set_num_blocks(worker.num_blocks);
    header->set_num_host_blocks(worker.num_host_blocks);
    header->set_block_size(worker.block_size);
    header->set_max_sequences(worker.max_sequences);
    header->set_layout_id(layout_id);
  }

  void AddSteps(const LastSteps& last_steps) {
    chunks_[0].mutable_header()->set_epoch(last_steps.epoch());
    chunks_[0].mutable_header()->set_last_step(last_steps.last_step());
    for (const v1::InventoryResult& result : last_steps.results()) {
      *Chunk(static_cast<int64_t>(result.ByteSizeLong()))->add_results() = result;
    }
  }

  void AddRow(uint32_t index, const SequenceRow& row) {
    v1::InventoryRow out;
    out.set_row(index);
    out.set_sequence(Value(row.sequence()));
    if (row.forked_from().has_value()) out.set_forked_from(Value(*row.forked_from()));
    out.set_sample_index(row.sample_index());
    out.set_prompt_length(row.prompt_length());
    out.mutable_token_ids()->Add(row.tokens().begin(), row.tokens().end());
    out.set_computed_tokens(std::max(0, row.num_computed()));
    out.mutable_blocks()->Add(row.block_table().begin(), row.block_table().end());
    for (const auto& [entry, host_block] : row.swapped_out()) {
      out.add_swapped_entries(entry);
      out.add_host_blocks(host_block);
    }
    out.set_record(row.record());
    out.set_num_logprobs_plus_one(static_cast<uint32_t>(row.sampling().num_top() + 1));
    out.set_num_prompt_logprobs_plus_one(static_cast<uint32_t>(row.sampling().num_prompt_top() + 1));
    out.set_num_candidates(static_cast<uint32_t>(row.sampling().num_candidates()));
    const int64_t idle_ms = (session_end_us_ - row.last_slice_us().value_or(session_end_us_)) / 1000;
    out.set_idle_ms(static_cast<uint32_t>(std::clamp<int64_t>(idle_ms, 0, std::numeric_limits<uint32_t>::max())));
    *out.mutable_scores() = row.scores();
    if (!told_prompt_scores_.contains(row.prompt_scores())) *out.mutable_prompt_scores() = *row.prompt_scores();
    const auto has_room = [&] {
      const int64_t size = static_cast<int64_t>(out.ByteSizeLong());
      return size <= limits_.max_row_bytes && HasRoomFor(size + kMaxCacheRootBytes);
    };
    if (!has_room()) {
      out.clear_scores();
      out.clear_prompt_scores();
    }
    if (!has_room()) return LeaveOut();
    const int64_t num_bytes = static_cast<int64_t>(out.ByteSizeLong());
    if (row.cache_root() != nullptr) out.set_cache_root_plus_one(1 + RootIndex(*row.cache_root()));
    if (out.has_prompt_scores()) told_prompt_scores_.insert(row.prompt_scores());
    *Chunk(num_bytes)->add_rows() = std::move(out);
    ++num_rows_;
  }

  void AddLabels() {
    // A content number is greater than the number of the content before it. So with this order, parents come before
    // children.
    std::vector<std::pair<uint64_t, uint32_t>> places;  // Full labels.
    std::vector<uint32_t> partial;
    for (uint32_t place = 0; place < static_cast<uint32_t>(labels_.num_places()); ++place) {
      if (labels_.label(place).parent == 0) continue;
      if (labels_.label(place).content == 0) {
        partial.push_back(place);
      } else {
        places.push_back({labels_.label(place).content, place});
      }
    }
    std::sort(places.begin(), places.end());
    for (const auto& [content, place] : places) AddLabel(place);
    for (const uint32_t place : partial) AddLabel(place);
  }

  std::vector<v1::InventoryChunk> Finish() {
    v1::InventoryHeader* const header = chunks_[0].mutable_header();
    header->set_num_rows(num_rows_);
    header->set_num_labels(num_labels_);
    header->set_num_left_out(num_left_out_);
    chunks_.back().set_is_last(true);
    return std::move(chunks_);
  }

 private:
  void AddLabel(uint32_t place) {
    const BlockLabels::Label& label = labels_.label(place);
    uint32_t parent_plus_one = 0;
    if (label.parent != labels_.RootNumber(label.root)) {
      const auto parent = numbers_.find(label.parent);
      if (parent == numbers_.end()) return;
      parent_plus_one = 1 + parent->second;
    }
    const absl::Span<const TokenId> tokens = labels_.TokensOf(place);
    const int64_t num_bytes = kLabelBytes + int64_t{4} * label.num_tokens;
    if (!HasRoomFor(num_bytes + kMaxCacheRootBytes)) return LeaveOut();
    const uint32_t root = RootIndex(labels_.RootName(label.root));
    v1::InventoryLabels* const out = Chunk(num_bytes)->mutable_labels();
    out->add_blocks(place);
    out->add_parents_plus_one(parent_plus_one);
    out->add_cache_roots(root);
    out->add_num_tokens(label.num_tokens);
    out->mutable_token_ids()->Add(tokens.begin(), tokens.end());
    if (label.content != 0) numbers_.emplace(label.content, num_labels_);
    ++num_labels_;
  }

  uint32_t RootIndex(const std::string& name) {
    const auto [entry, is_new] = root_index_.try_emplace(name, static_cast<uint32_t>(root_index_.size()));
    if (is_new) Chunk(static_cast<int64_t>(name.size()))->add_cache_roots(name);
    return entry->second;
  }

  bool HasRoomFor(int64_t num_bytes) const { return total_bytes_ + num_bytes <= limits_.max_bytes; }
  void LeaveOut() { ++num_left_out_; }

  // The chunk for the next piece of this size.
  v1::InventoryChunk* Chunk(int64_t num_bytes) {
    if (chunk_bytes_ > 0 && chunk_bytes_ + num_bytes > limits_.chunk_bytes) {
      chunks_.emplace_back();
      chunk_bytes_ = 0;
    }
    chunk_bytes_ += num_bytes;
    total_bytes_ += num_bytes;
    return &chunks_.back();
  }

  const BlockLabels& labels_;
  const InventoryLimits limits_;
  const int64_t session_end_us_;
  std::vector<v1::InventoryChunk> chunks_;
  int64_t chunk_bytes_ = 0;  // Size of the last chunk.
  int64_t total_bytes_ = 0;
  absl::flat_hash_set<const v1::ScoreColumns*> told_prompt_scores_;
  absl::flat_hash_map<std::string, uint32_t> root_index_;
  absl::flat_hash_map<uint64_t, uint32_t> numbers_;  // The number of a label with this content.
  uint32_t num_rows_ = 0;
  uint32_t num_labels_ = 0;
  uint32_t num_left_out_ = 0;
};

}  // namespace

void LastSteps::Begin(const v1::StepPlan& plan, absl::Span<const SequenceRow> rows) {
  v1::InventoryResult& step = begun_.emplace_back(std::move(spare_));
  step.Clear();
  *step.mutable_slice_rows() = plan.slice_rows();
  for (const uint32_t row : plan.slice_rows()) step.add_slice_sequences(Value(rows[row].sequence()));
  *step.mutable_slice_first_positions() = plan.slice_first_positions();
  *step.mutable_slice_num_tokens() = plan.slice_num_tokens();
  step.set_slice_samples(plan.slice_samples());
}

void LastSteps::Finish(uint64_t epoch, const v1::StepResult& result) {
  if (epoch_ != epoch) results_.clear();
  epoch_ = epoch;
  if (results_.size() == kMaxPlansInFlight) {
    spare_ = std::move(results_.front());
    results_.pop_front();
  }
  results_.push_back(std::move(begun_.front()));
  begun_.pop_front();
  *results_.back().mutable_result() = result;
}

bool HasInventory(const Executor& executor) {
  const auto is_started = [](const SequenceRow& row) { return row.is_started(); };
  return (executor.labels() != nullptr && executor.labels()->num_labels() > 0) ||
         std::any_of(executor.rows().begin(), executor.rows().end(), is_started);
}

std::vector<v1::InventoryChunk> MakeInventory(const Executor& executor, const LastSteps& last_steps,
                                              const std::string& layout_id, const InventoryLimits& limits,
                                              int64_t session_end_us) {
  ChunkWriter writer(*executor.labels(), executor.limits(), layout_id, limits, session_end_us);
  writer.AddSteps(last_steps);
  for (size_t row = 0; row < executor.rows().size(); ++row) {
    // What a sequence that has failed has stored is of no use.
    const bool is_useful = executor.rows()[row].is_started() && executor.rows()[row].failure() == nullptr;
    if (is_useful) writer.AddRow(static_cast<uint32_t>(row), executor.rows()[row]);
  }
  writer.AddLabels();
  return writer.Finish();
}

}  // namespace quire
