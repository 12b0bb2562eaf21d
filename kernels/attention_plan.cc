// SPDX-License-Identifier: Apache-2.0

#include "kernels/attention_plan.h"

#include <algorithm>

namespace quire {
namespace {

// A sequence with more new tokens amortises the reading of its cache itself. Sharing would leave many partial results.
constexpr int kMaxSharingQueries = 8;

// Cost of reading one token, in rows of arithmetic on it.
constexpr int kReadingCost = 16;

}  // namespace

const AttentionPlan& AttentionPlanner::Plan(const BatchView& batch, const AttentionPlanOptions& options) {
  batch_ = &batch;
  options_ = options;
  next_row_ = 0;
  plan_.tokens.clear();
  plan_.items.clear();
  plan_.phase_ends.clear();
  plan_.merges.clear();
  plan_.places.clear();
  plan_.num_partials = 0;
  planned_.clear();
  is_planned_.assign(batch.num_sequences, false);
  PlanSharing();
  for (int i = 0; i < batch.num_sequences; ++i) {
    if (!is_planned_[i]) AddSequence(i, 0);
  }
  CutLargeItems();
  SortItems();
  return plan_;
}

PartialPlace AttentionPlanner::AllocatePlace(int num_rows) {
  const PartialPlace place = {plan_.num_partials, num_rows * options_.group_size};
  plan_.num_partials += place.head_stride * options_.num_kv_heads;
  return place;
}

PartialPlace AttentionPlanner::PlaceOf(const Segment& segment, int row) const {
  return {segment.place.first + (row - segment.first_row) * options_.group_size, segment.place.head_stride};
}

void AttentionPlanner::AddItem(const AttentionItem& item, int phase) {
  const int64_t rows = int64_t{item.num_rows} * options_.group_size;
  planned_.push_back({item, phase, (rows + kReadingCost) * (item.end - item.begin)});
}

// Visits the sequences in prefix order and keeps a stack of the shared ranges that contain the current sequence.
void AttentionPlanner::PlanSharing() {
  prefix_finder_.Find(*batch_,
                      {.block_size = options_.block_size,
                       .max_queries = kMaxSharingQueries,
                       .window = options_.window,
                       .unit_tokens = options_.tile_tokens},
                      &prefixes_);
  segments_.clear();
  open_ranges_.clear();
  size_t next_range = 0;
  for (int i = 0; i < int(prefixes_.order.size()); ++i) {
    while (!open_ranges_.empty() && open_ranges_.back().end == i) {
      segments_.resize(open_ranges_.back().num_segments_before);
      open_ranges_.pop_back();
    }
    for (; next_range < prefixes_.ranges.size() && prefixes_.ranges[next_range].first == i; ++next_range) {
      const SharedRange& range = prefixes_.ranges[next_range];
      int num_rows = 0;
      for (int j = i; j < i + range.count; ++j) num_rows += NumQueries(prefixes_.order[j]);
      OpenRange open = {range.first + range.count, range.end, segments_.size(), false};
      const bool is_inner = !open_ranges_.empty();
      open.is_left_out =
          (is_inner && open_ranges_.back().is_left_out) || !HasRoom(num_rows, NumSplits(range.begin, range.end));
      if (open.is_left_out) open.num_tokens = is_inner ? open_ranges_.back().num_tokens : 0;
      open_ranges_.push_back(open);
      if (!open.is_left_out) AddSharedRange(range, num_rows);
    }
    AddSequence(prefixes_.order[i], open_ranges_.empty() ? 0 : open_ranges_.back().num_tokens);
  }
  segments_.clear();
}

// The rows of the range start at next_row_, because its sequences are planned next.
void AttentionPlanner::AddSharedRange(const SharedRange& range, int num_rows) {
  const int rows_per_item = std::max(1, options_.item_rows / options_.group_size);
  for (int begin = range.begin; begin < range.end;) {
    const int split = begin / options_.split_tokens;
    const int end = std::min(range.end, (split + 1) * options_.split_tokens);
    Segment segment = {split, 0, next_row_, {}};
    const bool resumes = begin % options_.split_tokens != 0;
    if (resumes) {
      segment.phase = segments_.back().phase + 1;
      segment.place = PlaceOf(segments_.back(), next_row_);
    } else {
      segment.place = AllocatePlace(num_rows);
    }
    segments_.push_back(segment);
    for (int row = 0; row < num_rows; row += rows_per_item) {
      const PartialPlace place = PlaceOf(segment, next_row_ + row);
      AddItem({.sequence = prefixes_.order[range.first],
               .first_row = next_row_ + row,
               .num_rows = std::min(rows_per_item, num_rows - row),
               .begin = begin,
               .end = end,
               .resumed = resumes ? place : PartialPlace{},
               .first_place = 0,
               .num_places = 0,
               .partial = place},
              segment.phase);
    }
    begin = end;
  }
}

void AttentionPlanner::AddSequence(int sequence, int begin) {
  is_planned_[sequence] = true;
  const int num_queries = NumQueries(sequence), context_len = batch_->context_lens[sequence];
  const int first_token = batch_->query_starts[sequence];
  const int rows_per_item = std::max(1, options_.item_rows / options_.group_size);
  for (int i = 0; i < num_queries; ++i) plan_.tokens.push_back(first_token + i);
  for (int row = 0; row < num_queries; row += rows_per_item) {
    const int num_rows = std::min(rows_per_item, num_queries - row);
    const int first_position = context_len - num_queries + row;
    const int first_tile = FirstVisible(first_position, options_.window) / options_.tile_tokens;
    AddRows({.sequence = sequence,
             .first_row = next_row_ + row,
             .num_rows = num_rows,
             .begin = std::max(begin, first_tile * options_.tile_tokens),
             .end = first_position + num_rows,
             .resumed = {},
             .first_place = int32_t(plan_.places.size()),
             .num_places = 0,
             .partial = {}});
  }
  next_row_ += num_queries;
}

// Adds an item that continues from the open segments.
void AttentionPlanner::AddRows(AttentionItem whole) {
  int phase = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    phase = std::max(phase, segment.phase + 1);
    if (i + 1 < segments_.size() && segments_[i + 1].split == segment.split) continue;  // The next one includes it.
    const PartialPlace place = PlaceOf(segment, whole.first_row);
    if (segment.split == whole.begin / options_.split_tokens) {
      whole.resumed = place;
    } else {
      plan_.places.push_back(place);
      ++whole.num_places;
    }
  }
  AddItem(whole, phase);
}

int AttentionPlanner::NumSplits(int begin, int end) const {
  return (end - 1) / options_.split_tokens - begin / options_.split_tokens + 1;
}

bool AttentionPlanner::HasRoom(int num_rows, int num_parts) const {
  const int64_t wanted = int64_t{num_parts} * num_rows * options_.group_size * options_.num_kv_heads;
  return plan_.num_partials + wanted <= options_.max_partials;
}

void AttentionPlanner::CutLargeItems() {
  int64_t total_cost = 0;
  for (const PlannedItem& planned : planned_) total_cost += planned.cost * options_.num_kv_heads;
  const size_t num_whole_items = planned_.size();
  for (size_t i = 0; i < num_whole_items; ++i) {
    const AttentionItem& item = planned_[i].item;
    const int num_splits = NumSplits(item.begin, item.end);
    const int64_t wanted_parts = (planned_[i].cost * options_.min_items + total_cost - 1) / total_cost;
    if (num_splits == 1 || wanted_parts <= 1) continue;
    const int splits_per_part = options_.sizes_parts ? int((num_splits + wanted_parts - 1) / wanted_parts) : 1;
    if (!HasRoom(item.num_rows, (num_splits + splits_per_part - 1) / splits_per_part)) continue;
    const PlannedItem whole = planned_[i];
    planned_[i].cost = -1;
    CutItem(whole, splits_per_part);
  }
  std::erase_if(planned_, [](const PlannedItem& planned) { return planned.cost < 0; });
}

// Replaces the item by one item per part and one merge, which joins their results after the item's earlier places.
void AttentionPlanner::CutItem(const PlannedItem& whole, int splits_per_part) {
  const AttentionItem& item = whole.item;
  AttentionMerge merge = {item.first_row, item.num_rows, int32_t(plan_.places.size()), item.num_places};
  for (int i = 0; i < item.num_places; ++i) plan_.places.push_back(PartialPlace(plan_.places[item.first_place + i]));
  for (int begin = item.begin; begin < item.end;) {
    AttentionItem part = item;
    part.begin = begin;
    part.end = std::min(item.end, (begin / options_.split_tokens + splits_per_part) * options_.split_tokens);
    part.num_places = 0;
    const bool resumes = begin == item.begin && item.resumed.first >= 0;
    if (!resumes) part.resumed = {};
    part.partial = resumes ? item.resumed : AllocatePlace(item.num_rows);
    plan_.places.push_back(part.partial);
    ++merge.num_places;
    AddItem(part, resumes ? whole.phase : 0);
    begin = part.end;
  }
  plan_.merges.push_back(merge);
}

void AttentionPlanner::SortItems() {
  std::sort(planned_.begin(), planned_.end(), [](const PlannedItem& a, const PlannedItem& b) {
    if (a.phase != b.phase) return a.phase < b.phase;
    if (a.cost != b.cost) return a.cost > b.cost;
    return a.item.first_row != b.item.first_row ? a.item.first_row < b.item.first_row : a.item.begin < b.item.begin;
  });
  for (const PlannedItem& planned : planned_) {
    while (int(plan_.phase_ends.size()) < planned.phase) plan_.phase_ends.push_back(int32_t(plan_.items.size()));
    plan_.items.push_back(planned.item);
  }
  plan_.phase_ends.push_back(int32_t(plan_.items.size()));
}

}  // namespace quire
