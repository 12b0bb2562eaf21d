// How waiting requests enter.

#include <algorithm>
#include <memory>
#include <optional>

#include "base/check.h"
#include "scheduler/admission.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

// A request that found no room looks again when blocks were freed, and after so many plans: the cache may hold more.
constexpr uint64_t kPlansBetweenLooks = 8;

bool UsesPrefixCache(const Request& request) {
  return !request.bypass_prefix_cache;
}

// Logits of the prompt's tokens are not cached.
bool MayStartCached(const Request& request) {
  return UsesPrefixCache(request) && request.sampling.num_prompt_logprobs < 0;
}

}  // namespace

int Scheduler::NumCachedTokens(const SequenceGroup& group) const {
  if (!MayStartCached(group.request())) return 0;
  return blocks_->FindPrefix(group.request().cache_salt, group.sequences().front()->tokens()).num_tokens;
}

Scheduler::Entry Scheduler::FindEntry(SequenceGroup* group) const {
  // Preempted a moment ago: tokens that its rows must start with are still on their way.
  if (group->has_slices_in_flight()) return {Door::kNoRoom};
  if (free_rows_.size() < group->num_rows()) return {Door::kNoRoom};
  const bool is_idle = running_.empty();
  const int num_free = blocks_->num_free_blocks();
  if (!is_idle && num_free <= group->short_with_free_blocks &&
      Value(next_step_) < Value(group->short_in) + kPlansBetweenLooks) {
    return {Door::kNoRoom};
  }
  const auto has_room = [&](int num_needed) { return HasRoom(num_needed, num_free, watermark_blocks_, is_idle); };
  const int num_needed = NumBlocksToEnter(*group);
  if (!group->is_swapped && MayStartCached(group->request())) {
    const PrefixHit hit = blocks_->FindPrefix(group->request().cache_salt, group->sequences().front()->tokens());
    if (hit.is_promised) return {Door::kWaitsForPrefix};
    const int num_missing = num_needed - hit.num_block_tokens / blocks_->block_size();
    if (has_room(num_missing + hit.num_revived_with_part)) return {Door::kOpen, hit.num_tokens};
    if (has_room(num_missing + hit.num_revived_blocks)) return {Door::kOpen, hit.num_block_tokens};
  } else if (has_room(num_needed)) {
    return {Door::kOpen};
  }
  group->short_with_free_blocks = num_free;
  group->short_in = next_step_;
  return {Door::kNoRoom};
}

// Its whole context without the prefix cache, and where it forks right afterwards a block for each child, but never
// more than it may ever have: alone it must fit.
int Scheduler::NumBlocksToEnter(const SequenceGroup& group) const {
  const int block_size = blocks_->block_size();
  const absl::Span<const std::unique_ptr<Sequence>> sequences = group.sequences();
  int num_blocks = group.is_swapped ? blocks_->NumBlocksToSwapIn(group.SequenceIds()) : 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& sequence = *sequences[i];
    if (group.is_swapped) {
      // What is to be written next may be shared.
      const int num_held = sequence.num_computed_tokens() / block_size;
      num_blocks += NumBlocksFor(sequence.num_known_tokens(), block_size) - num_held;
      continue;
    }
    const auto shared = SharedPart(sequence, sequences.first(i), block_size);
    num_blocks += NumBlocksFor(sequence.num_known_tokens(), block_size);
    if (shared.has_value()) num_blocks -= shared->num_tokens / block_size;
  }
  num_blocks += group.num_rows() - group.num_sequences();
  return static_cast<int>(std::min<int64_t>(num_blocks, MaxBlocks(group.request(), block_size)));
}

// Takes the blocks of the whole context at once: what is promised to one request is not free for the next.
void Scheduler::Enter(SequenceGroup* group, const Entry& entry, Draft* draft) {
  waiting_.Remove(group);
  running_.insert(RunningPlace(group->rank()), group);
  group->is_running = true;
  group->short_with_free_blocks = -1;
  if (group->is_swapped) {
    SwapIn(group, draft);
  } else {
    StartAgain(group, entry.num_cached_tokens, draft);
  }
  for (int i = group->num_sequences(); i < group->num_rows(); ++i) group->spare_rows.push_back(free_rows_.Take());
  for (const auto& sequence : group->sequences()) {
    draft->plan.starts.push_back({sequence->row(), sequence->id(), static_cast<uint32_t>(sequence->sample_index()),
                                  static_cast<int>(group->request().prompt.size()), sequence->tokens(),
                                  group->request().sampling});
    if (group->KeepsWaiting(sequence.get())) continue;
    const int num_tokens = SliceTokens(*sequence, draft->budget);
    if (num_tokens == 0) continue;
    draft->slices.push_back({group, sequence.get(), num_tokens});
    draft->budget -= num_tokens;
  }
}

void Scheduler::SwapIn(SequenceGroup* group, Draft* draft) {
  --counts_.swapped;
  bool has_room = blocks_->SwapIn(group->SequenceIds(), &draft->plan.swap_ins);
  for (const auto& sequence : group->sequences()) {
    const int num_computed = sequence->num_computed_tokens();
    has_room =
        has_room && blocks_->Allocate(sequence->id(), num_computed, sequence->num_known_tokens(), &draft->plan.copies);
    sequence->EnterRow(free_rows_.Take(), num_computed);
  }
  QUIRE_CHECK(has_room) << group->id() << " was swapped into " << blocks_->num_free_blocks() << " free blocks";
  group->is_swapped = false;
}

// The first sequence computes everything, the others what they do not share with an earlier one.
void Scheduler::StartAgain(SequenceGroup* group, int num_cached_tokens, Draft* draft) {
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
    const bool has_room =
        blocks_->Allocate(sequence->id(), num_computed, sequence->num_known_tokens(), &draft->plan.copies);
    QUIRE_CHECK(has_room) << sequence->id() << " was admitted into " << blocks_->num_free_blocks() << " free blocks";
    sequence->EnterRow(free_rows_.Take(), num_computed);
  }
  counts_.cached_tokens += num_cached_tokens;
  if (!group->has_started) group->num_cached_tokens = num_cached_tokens;
}

std::optional<WaitReason> Scheduler::ExplainWait(RequestId request) {
  SequenceGroup* group = Find(request);
  if (group == nullptr) return std::nullopt;
  WaitReason reason;
  reason.num_rows = group->num_rows();
  reason.num_free_rows = free_rows_.size();
  reason.num_free_blocks = blocks_->num_free_blocks();
  reason.num_watermark_blocks = running_.empty() ? 0 : watermark_blocks_;
  reason.is_swapped = group->is_swapped;
  if (group->is_running) return reason;
  reason.num_blocks = NumBlocksToEnter(*group);
  reason.num_ahead = waiting_.NumAhead(*group);
  if (!group->is_swapped && MayStartCached(group->request())) {
    const PrefixHit hit = blocks_->FindPrefix(group->request().cache_salt, group->sequences().front()->tokens());
    reason.num_cached_tokens = hit.num_tokens;
    reason.num_blocks += hit.num_revived_blocks - hit.num_block_tokens / blocks_->block_size();
  }
  group->short_with_free_blocks = -1;  // Look again.
  const Entry entry = FindEntry(group);
  using Kind = WaitReason::Kind;
  reason.kind = !MayAdmit()                              ? Kind::kBatchIsClosed
                : group->has_slices_in_flight()          ? Kind::kResults
                : reason.num_free_rows < reason.num_rows ? Kind::kRows
                : entry.door == Door::kWaitsForPrefix    ? Kind::kPrefix
                : entry.door == Door::kNoRoom            ? Kind::kBlocks
                : reason.num_ahead > 0                   ? Kind::kBehindOthers
                                                         : Kind::kNextPlan;
  return reason;
}

}  // namespace quire
