// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/plan_builder.h"

#include <numeric>

namespace quire {

v1::RowSampling Greedy() {
  v1::RowSampling sampling;
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  return sampling;
}

std::vector<uint32_t> Blocks(uint32_t first, int count) {
  std::vector<uint32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

std::vector<TokenId> Tokens(TokenId first, int count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

PlanBuilder& PlanBuilder::Start(uint32_t row, const std::vector<TokenId>& tokens, const v1::RowSampling& sampling,
                                int prompt_length, uint32_t sample_index) {
  v1::SequenceStart* start = plan_.add_starts();
  start->set_row(row);
  start->set_sequence(100 + row);
  start->set_sample_index(sample_index);
  start->set_prompt_length(prompt_length < 0 ? tokens.size() : prompt_length);
  start->mutable_token_ids()->Add(tokens.begin(), tokens.end());
  *start->mutable_sampling() = sampling;
  return *this;
}

PlanBuilder& PlanBuilder::Fork(uint32_t row, uint32_t parent, uint32_t sample_index) {
  plan_.add_fork_rows(row);
  plan_.add_fork_parents(parent);
  plan_.add_fork_sequences(100 + row);
  plan_.add_fork_sample_indices(sample_index);
  return *this;
}

PlanBuilder& PlanBuilder::Append(uint32_t row, TokenId token) {
  plan_.add_append_rows(row);
  plan_.add_append_token_ids(token);
  return *this;
}

PlanBuilder& PlanBuilder::SwapOut(uint32_t block, uint32_t host_block) {
  plan_.add_swap_out_blocks(block);
  plan_.add_swap_out_host_blocks(host_block);
  return *this;
}

PlanBuilder& PlanBuilder::SwapIn(uint32_t host_block, uint32_t block) {
  plan_.add_swap_in_host_blocks(host_block);
  plan_.add_swap_in_blocks(block);
  return *this;
}

PlanBuilder& PlanBuilder::Copy(uint32_t source, uint32_t destination) {
  plan_.add_copy_sources(source);
  plan_.add_copy_destinations(destination);
  return *this;
}

PlanBuilder& PlanBuilder::Sheets(uint32_t group, uint32_t first_sheet, uint32_t num_sheets,
                                 const std::vector<uint32_t>& blocks) {
  plan_.add_change_slices(plan_.slice_rows_size() - 1);
  plan_.add_change_groups(group);
  plan_.add_change_first_sheets(first_sheet);
  plan_.add_change_num_sheets(num_sheets);
  plan_.mutable_change_blocks()->Add(blocks.begin(), blocks.end());
  return *this;
}

PlanBuilder& PlanBuilder::WithRoot(const std::string& root) {
  plan_.mutable_starts(plan_.starts_size() - 1)->set_cache_root(root);
  return *this;
}

PlanBuilder& PlanBuilder::WithRecord(const std::string& record) {
  plan_.mutable_starts(plan_.starts_size() - 1)->set_record(record);
  return *this;
}

PlanBuilder& PlanBuilder::End(uint32_t row) {
  plan_.add_end_rows(row);
  return *this;
}

PlanBuilder& PlanBuilder::Record(uint32_t row, const std::string& record) {
  plan_.add_record_rows(row);
  plan_.add_records(record);
  return *this;
}

PlanBuilder& PlanBuilder::Slice(uint32_t row, uint32_t first_position, uint32_t num_tokens, bool samples,
                                const std::vector<uint32_t>& tail, uint32_t first_changed_block) {
  plan_.add_slice_rows(row);
  plan_.add_slice_first_positions(first_position);
  plan_.add_slice_num_tokens(num_tokens);
  plan_.add_slice_first_changed_blocks(first_changed_block);
  plan_.add_slice_tail_lengths(tail.size());
  plan_.mutable_block_tails()->Add(tail.begin(), tail.end());
  plan_.mutable_slice_samples()->push_back(samples ? 1 : 0);
  return *this;
}

}  // namespace quire
