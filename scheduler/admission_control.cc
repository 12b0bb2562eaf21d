// SPDX-License-Identifier: Apache-2.0

#include "scheduler/admission_control.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "absl/types/span.h"
#include "base/check.h"
#include "scheduler/request_size.h"

namespace quire {
namespace {

// Number of plans after which a group that found too few free blocks looks again, because the prefix cache may hold
// more of its prompt by then. It also looks again when more blocks are free.
constexpr uint64_t kPlansBetweenLooks = 8;

bool UsesPrefixCache(const Request& request) {
  return !request.bypass_prefix_cache;
}

// Neither the logits nor the hidden states of cached tokens are kept. So a request that wants them of the whole prompt
// must compute it.
bool MayStartCached(const Request& request) {
  return UsesPrefixCache(request) && request.sampling.num_prompt_logprobs < 0 &&
         !PoolsEarlierTokens(request.sampling.pooling);
}

}  // namespace

int WatermarkBlocks(double watermark, int num_blocks) {
  // 0.07 of 100 blocks is 7, although the product of the doubles is a little more than 7.
  constexpr double kRounding = 1e-6;
  return static_cast<int>(std::ceil(watermark * num_blocks - kRounding));
}

bool HasRoom(int num_needed, int num_free, int watermark_blocks, bool is_idle) {
  return num_needed <= (is_idle ? num_free : num_free - watermark_blocks);
}

AdmissionControl::AdmissionControl(const SchedulerOptions& options, BlockManager* blocks, RunningSet* running,
                                   WaitingQueue* waiting)
    : batching_(options.batching),
      keeps_rows_(options.keeps_rows),
      waiting_served_ratio_(options.waiting_served_ratio),
      blocks_(blocks),
      running_(running),
      waiting_(waiting),
      watermark_blocks_(WatermarkBlocks(options.watermark, blocks->num_blocks())) {}

bool AdmissionControl::MayAdmit() const {
  if (running_->empty()) return true;
  if (batching_ == Batching::kStatic && !is_batch_open_) return false;
  return waiting_->size() >= waiting_served_ratio_ * static_cast<double>(running_->size());
}

AdmissionControl::Decision AdmissionControl::Decide(SequenceGroup* group, StepId step) const {
  // The group was just preempted. Tokens that its rows must start with are still in flight.
  if (group->has_slices_in_flight()) return {Verdict::kNoRoom};
  if (running_->num_free_rows() < group->num_rows()) return {Verdict::kNoRoom};
  const bool is_idle = running_->empty();
  const int num_free = blocks_->num_free_blocks();
  SequenceGroup::Shortage& shortage = group->shortage();
  if (!is_idle && num_free <= shortage.num_free_blocks && Value(step) < Value(shortage.step) + kPlansBetweenLooks) {
    return {Verdict::kNoRoom};
  }
  const auto has_room = [&](int num_needed) { return HasRoom(num_needed, num_free, watermark_blocks_, is_idle); };
  const int num_needed = NumBlocksToEnter(*group);
  if (!group->is_swapped() && MayStartCached(group->request())) {
    const PrefixHit hit = blocks_->FindPrefix(group->request().cache_salt, group->sequences().front()->tokens());
    if (hit.is_promised) return {Verdict::kWaitsForPrefix};
    const int num_missing = num_needed - static_cast<int>(blocks_->groups().NumSharedBlocks(hit.num_block_tokens));
    if (has_room(num_missing + hit.num_revived_with_part)) return {Verdict::kMayEnter, hit.num_tokens};
    if (has_room(num_missing + hit.num_revived_blocks)) return {Verdict::kMayEnter, hit.num_block_tokens};
  } else if (has_room(num_needed)) {
    return {Verdict::kMayEnter};
  }
  shortage = {num_free, step};
  return {Verdict::kNoRoom};
}

// The blocks of the whole context, without what the prefix cache holds, and one more for each child when the group
// forks right afterwards. The result never exceeds what the request can ever hold: an idle pool must have room for it.
int AdmissionControl::NumBlocksToEnter(const SequenceGroup& group) const {
  const CacheGroups& groups = blocks_->groups();
  const absl::Span<const std::unique_ptr<Sequence>> sequences = group.sequences();
  int64_t num_blocks = group.is_swapped() ? blocks_->NumBlocksToSwapIn(group.SequenceIds()) : 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& sequence = *sequences[i];
    if (group.is_swapped()) {
      // The partial last block, which is written next, may be shared: it counts as one that has to be copied.
      num_blocks += groups.NumBlocks(sequence.num_known_tokens());
      num_blocks -= groups.NumSharedBlocks(sequence.num_computed_tokens());
      continue;
    }
    const auto shared = SharedPart(sequence, sequences.first(i), groups.block_size());
    num_blocks += groups.NumBlocks(sequence.num_known_tokens());
    if (shared.has_value()) num_blocks -= groups.NumSharedBlocks(shared->num_tokens);
  }
  num_blocks += group.num_rows() - group.num_sequences();
  return static_cast<int>(std::min(num_blocks, MaxBlocks(group.request(), groups)));
}

void AdmissionControl::Enter(SequenceGroup* group, const Decision& decision, StepPlan* plan) {
  waiting_->Remove(group);
  ++num_entered_;
  num_entered_tokens_ += group->waiting_tokens();
  group->shortage().num_free_blocks = -1;
  if (group->is_swapped()) {
    SwapIn(group, plan);
  } else {
    StartAgain(group, decision.num_cached_tokens, plan);
  }
  running_->Add(group);
  for (int i = group->num_sequences(); i < group->num_rows(); ++i) group->AddSpareRow(running_->TakeRow());
  for (const auto& sequence : group->sequences()) plan->starts.push_back(StartOf(*group, *sequence));
}

SequenceStart AdmissionControl::StartOf(const SequenceGroup& group, const Sequence& sequence) const {
  const Request& request = group.request();
  SequenceStart start{sequence.row(),
                      sequence.id(),
                      static_cast<uint32_t>(sequence.sample_index()),
                      static_cast<int>(request.prompt.size()),
                      sequence.tokens(),
                      request.sampling};
  if (request.sampling.guide != nullptr) start.guide_owner = request.cache_salt;
  if (!keeps_rows_) return start;
  start.cache_root = {.is_private = request.bypass_prefix_cache, .salt = request.cache_salt};
  start.record = request.record;
  start.num_cached_tokens = group.progress().num_cached_tokens;
  start.num_moves = group.progress().num_moves;
  start.numerics_change = sequence.numerics_change();
  const bool is_first = &sequence == group.sequences().front().get();
  if (group.beam_search() != nullptr && is_first && request.record != nullptr && sequence.num_generated_tokens() > 0) {
    start.search = EncodeBeamSearchState(group.SearchState());
  }
  if (!group.keeps_scores() || group.NumScoreNumbers() > kMaxStartScores) return start;
  if (static_cast<int>(sequence.scores.size()) == sequence.num_generated_tokens()) start.scores = sequence.scores;
  start.prompt_scores = group.prompt_scores();
  return start;
}

void AdmissionControl::SwapIn(SequenceGroup* group, StepPlan* plan) {
  bool has_room = blocks_->SwapIn(group->SequenceIds(), &plan->swap_ins);
  for (const auto& sequence : group->sequences()) {
    const int num_computed = sequence->num_computed_tokens();
    has_room = has_room && blocks_->Allocate(sequence->id(), num_computed, sequence->num_known_tokens(), &plan->copies);
    sequence->EnterRow(running_->TakeRow(), num_computed);
  }
  QUIRE_CHECK(has_room) << group->id() << " was swapped into " << blocks_->num_free_blocks() << " free blocks";
}

// The first sequence computes everything. The others compute only what they do not share with an earlier one.
void AdmissionControl::StartAgain(SequenceGroup* group, int num_cached_tokens, StepPlan* plan) {
  const Request& request = group->request();
  const absl::Span<const std::unique_ptr<Sequence>> sequences = group->sequences();
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence* sequence = sequences[i].get();
    int num_computed = 0;
    if (const auto shared = SharedPart(*sequence, sequences.first(i), blocks_->block_size()); shared.has_value()) {
      num_computed = shared->num_tokens;
      blocks_->Fork(shared->sequence, sequence->id(), num_computed);
      sequence->wait = shared;
    } else if (UsesPrefixCache(request)) {
      num_computed = i == 0 ? num_cached_tokens : 0;
      blocks_->AdoptPrefix(sequence->id(), request.cache_salt, sequence->tokens(), num_computed);
    }
    const bool has_room = blocks_->Allocate(sequence->id(), num_computed, sequence->num_known_tokens(), &plan->copies);
    QUIRE_CHECK(has_room) << sequence->id() << " was admitted into " << blocks_->num_free_blocks() << " free blocks";
    sequence->EnterRow(running_->TakeRow(), num_computed);
    if (num_computed == sequence->num_known_tokens()) sequence->DrawAgain();
  }
  num_tokens_from_cache_ += num_cached_tokens;
  SequenceGroup::Progress& progress = group->progress();
  // A request that was continued may also find tokens in the cache that follow its prompt.
  if (!progress.has_started) {
    progress.num_cached_tokens = std::min(num_cached_tokens, static_cast<int>(request.prompt.size()));
  }
}

int AdmissionControl::NumCachedTokens(const SequenceGroup& group) const {
  if (!MayStartCached(group.request())) return 0;
  return blocks_->FindPrefix(group.request().cache_salt, group.sequences().front()->tokens()).num_tokens;
}

WaitReason AdmissionControl::Explain(SequenceGroup* group, StepId step) {
  WaitReason reason;
  reason.num_rows = group->num_rows();
  reason.num_free_rows = running_->num_free_rows();
  reason.num_free_blocks = blocks_->num_free_blocks();
  reason.num_watermark_blocks = running_->empty() ? 0 : watermark_blocks_;
  reason.is_swapped = group->is_swapped();
  if (group->is_running()) return reason;
  reason.num_blocks = NumBlocksToEnter(*group);
  reason.num_ahead = waiting_->NumAhead(*group);
  if (!group->is_swapped() && MayStartCached(group->request())) {
    const PrefixHit hit = blocks_->FindPrefix(group->request().cache_salt, group->sequences().front()->tokens());
    reason.num_cached_tokens = hit.num_tokens;
    reason.num_blocks +=
        hit.num_revived_blocks - static_cast<int>(blocks_->groups().NumSharedBlocks(hit.num_block_tokens));
  }
  group->shortage().num_free_blocks = -1;  // Makes Decide look at the blocks again.
  const Verdict verdict = Decide(group, step).verdict;
  using Kind = WaitReason::Kind;
  reason.kind = !MayAdmit()                              ? Kind::kBatchIsClosed
                : group->has_slices_in_flight()          ? Kind::kResults
                : reason.num_free_rows < reason.num_rows ? Kind::kRows
                : verdict == Verdict::kWaitsForPrefix    ? Kind::kPrefix
                : verdict == Verdict::kNoRoom            ? Kind::kBlocks
                : reason.num_ahead > 0                   ? Kind::kBehindOthers
                                                         : Kind::kNextPlan;
  return reason;
}

}  // namespace quire
