// SPDX-License-Identifier: Apache-2.0

// The part of SimEngine that knows what another manager takes over from the worker.

#include <algorithm>
#include <utility>

#include "base/num_blocks.h"
#include "base/status.h"
#include "kv_manager/worker_link/row_record.h"
#include "tests/sim/sim_engine.h"
#include "tests/sim/violation.h"

namespace quire {

SimEngine::Remains SimEngine::Die(int num_plans) {
  Remains remains;
  remains.has_searched = has_searched_ || has_searched_before_;
  remains.num_managers = num_managers_before_ + 1;
  for (uint32_t row = 0; scheduler_ != nullptr && row < static_cast<uint32_t>(options_.rows); ++row) {
    const Scheduler::Occupant occupant = scheduler_->OccupantOf(RowId{row});
    if (occupant.sequence == nullptr) continue;
    const absl::Span<const BlockId> table = blocks_->Table(occupant.sequence->id());
    const auto& record = scheduler_->FindGroup(occupant.request)->request().record;
    remains.running.push_back({occupant.request, record == nullptr ? "" : *record, occupant.sequence->id(), RowId{row},
                               std::vector<BlockId>(table.begin(), table.end())});
  }
  // A row whose start is lost may hold the same sequence as it was before a preemption.
  for (const SequenceStart& start : ranks_->OnManagerLost(num_plans)) {
    std::erase_if(remains.running, [&](const RunningAtDeath& running) { return running.row == start.row; });
  }
  remains.ranks = std::move(ranks_);
  return remains;
}

void SimEngine::TakePostedUntilOpened() {
  if (std::exchange(is_restoring_, true)) return;
  Settle();
  while (num_taken_ > 0 && posted_.front().kind != Posted::Kind::kOpened) TakeOnePosted();
}

absl::StatusOr<RequestRestored> SimEngine::OnRestore(const RequestToRestore& found) {
  TakePostedUntilOpened();
  const absl::StatusOr<Restored> restored = hooks_.restore(this, found);
  if (!restored.ok()) {
    const std::optional<int> id = RequestOfRecord(found.record);
    if (id.has_value()) refused_.emplace(RequestId{static_cast<uint64_t>(*id)}, found.record);
    return restored.status();
  }
  const std::shared_ptr<SimCaller> caller = restored->caller;
  lost_[caller->request().id] = caller;  // Unless `keep` is called.
  const auto keep = [this, caller, keep = restored->keep](const RestoredCopy& copy) {
    const RequestId id = caller->request().id;
    const bool ran_last =
        std::any_of(running_at_death_.begin(), running_at_death_.end(), [&](const RunningAtDeath& running) {
          int num_rows = 0;
          return running.request == id && !ranks_->was_damaged() && !ranks_->has_hidden_rows() &&
                 ranks_->adopted() != nullptr && RowSinceDeath(running, &num_rows) != nullptr;
        });
    const absl::Status status = keep(copy, ran_last);
    lost_.erase(id);
    if (status.ok()) {
      restoring_.push_back({caller});
    } else {
      refused_.emplace(id, *caller->request().record);
    }
    return status;
  };
  const auto has_ended = [this, caller, is_unwanted = restored->is_unwanted] {
    if (!is_unwanted) return false;
    caller->OnCancelPosted();
    Post({.kind = Posted::Kind::kCancel, .caller = caller});
    return true;
  };
  return RequestRestored{.request = caller->request(), .sink = caller, .has_ended = has_ended, .keep = keep};
}

// The streams have been told what their requests have become.
void SimEngine::OnRestored(const RestoredBlocks& restored) {
  TakePostedUntilOpened();
  for (const auto& [id, caller] : lost_) {
    status_.Update(caller->status());
    if (!caller->is_lost()) Complain("request ", Value(id), " is neither restored nor refused nor lost");
  }
  report_.lost_renumbered += static_cast<int64_t>(lost_.size());
  for (Restoring& request : restoring_) {
    request.is_over = request.caller->has_ended();
    request.num_tokens = request.caller->num_tokens();
    report_.restored_renumbered += request.caller->has_changed_numerics();
    if (!request.caller->has_started()) Complain("a restored request has not started");
    status_.Update(request.caller->status());
    moved_.requests -= request.is_over;
    moved_.tokens -= request.num_tokens;
    moved_.cached_tokens -= request.caller->num_cached_tokens();
    moved_.prompt_tokens -= static_cast<int64_t>(request.caller->request().prompt.size());
  }
  // The session may have been lost meanwhile, with all that the worker had.
  if (ranks_->has_session() && ranks_->adopted() != nullptr) {
    for (const RestoredBlocks::Table& table : restored.tables) {
      const absl::Span<const TokenId> stored = absl::MakeConstSpan(table.tokens).first(table.num_stored);
      const absl::Status slots = ranks_->memory().CheckSlots(table.blocks, stored);
      if (!slots.ok()) Complain("restored sequence ", Value(table.sequence), ": ", slots.message());
    }
    std::vector<std::pair<std::vector<BlockId>, std::vector<TokenId>>> paths;
    for (const RestoredBlocks::CachedBlock& cached : restored.cached) {
      auto& [blocks, tokens] = paths.emplace_back();
      if (cached.parent.has_value()) paths.back() = std::as_const(paths)[*cached.parent];
      blocks.push_back(cached.block);
      tokens.insert(tokens.end(), cached.tokens.begin(), cached.tokens.end());
      const absl::Status slots = ranks_->memory().CheckSlots(blocks, tokens);
      if (!slots.ok()) Complain("restored cache: ", slots.message());
    }
    CheckRevived(restored);
  }
  has_changed_ = true;
}

// A search whose rows the worker still has continues with all of its live beams. The row of a beam that has failed, and
// the record in it, are no longer there.
void SimEngine::CheckRevivedSearch(const Request& request, const RestoredBlocks& restored) {
  const std::string& record = *request.record;
  if (ranks_->memory().HasRowOf(record, /*has_failed=*/true)) return;
  std::optional<BeamSearchState> search;
  std::map<SequenceId, size_t> num_tokens;  // Of each sequence.
  for (const WorkerInventory::Row& row : ranks_->adopted()->rows) {
    const std::optional<RowRecord> read = ReadRowRecord(row.record);
    if (!read.has_value() || read->request != record) continue;
    num_tokens[row.sequence] = std::max(num_tokens[row.sequence], row.tokens.size());
    if (read->search.empty()) continue;
    std::optional<BeamSearchState> other = DecodeBeamSearchState(read->search, request, model_.vocab_size);
    if (!other.has_value()) return Complain("a row of request ", Value(request.id), " has a wrong search");
    if (!search.has_value() || other->num_generated > search->num_generated) search = std::move(other);
  }
  const int num_generated = search.has_value() ? search->num_generated : 0;
  for (const auto& [sequence, num_row_tokens] : num_tokens) {
    if (num_row_tokens <= request.prompt.size() + static_cast<size_t>(num_generated)) continue;
    return Complain("the records of request ", Value(request.id), " know ", num_generated,
                    " tokens of its beams, row of ", "sequence ", Value(sequence), " has ",
                    num_row_tokens - request.prompt.size());
  }
  if (!search.has_value()) return;
  for (const SequenceId beam : search->sequences) {
    if (num_tokens[beam] != request.prompt.size() + static_cast<size_t>(search->num_generated)) return;
  }
  for (const SequenceId beam : search->sequences) {
    if (std::any_of(restored.tables.begin(), restored.tables.end(),
                    [&](const RestoredBlocks::Table& table) { return table.sequence == beam; })) {
      continue;
    }
    Complain("the search of request ", Value(request.id), " restarts, the worker has ", search->num_generated,
             " tokens of its beams");
  }
}

// `num_rows` is the number of rows of the request.
const WorkerInventory::Row* SimEngine::RowSinceDeath(const RunningAtDeath& running, int* num_rows) const {
  const WorkerInventory::Row* own = nullptr;
  for (const WorkerInventory::Row& row : ranks_->adopted()->rows) {
    const std::optional<RowRecord> read = ReadRowRecord(row.record);
    if (!read.has_value() || read->request != running.record) continue;
    ++*num_rows;
    if (row.row == running.row && row.sequence == running.sequence) own = &row;
  }
  return own;
}

// For requests with one sample that rows have as a whole, and for searches: nothing is lost that the worker had.
void SimEngine::CheckRevived(const RestoredBlocks& restored) {
  if (ranks_->was_damaged() || ranks_->has_hidden_rows()) return;
  for (const RunningAtDeath& running : running_at_death_) {
    int num_rows = 0;
    const WorkerInventory::Row* const own = RowSinceDeath(running, &num_rows);
    // The plan that forks the sequence into the row was lost.
    if (own == nullptr || refused_.contains(running.request)) continue;
    const auto found = std::find_if(restoring_.begin(), restoring_.end(), [&](const Restoring& request) {
      return request.caller->request().id == running.request;
    });
    // Only what one row has as a whole must continue.
    const auto lost = lost_.find(running.request);
    if (lost != lost_.end() && (num_rows > 1 || NumRows(lost->second->request()) > 1)) {
      const Request& request = lost->second->request();
      if (request.beam.has_value()) CheckRevivedSearch(request, restored);
      continue;
    }
    if (found == restoring_.end()) {
      Complain("request ", Value(running.request), " ran and is not restored");
      continue;
    }
    const Request& request = found->caller->request();
    if (request.beam.has_value()) CheckRevivedSearch(request, restored);
    if (num_rows > 1 || request.num_samples > 1 || request.beam.has_value()) continue;
    const auto num_generated = static_cast<int64_t>(own->tokens.size()) - own->prompt_length;
    // After a stop token, the worker may have drawn another one.
    if (found->is_over ? num_generated > found->num_tokens + 1 : num_generated != found->num_tokens) {
      Complain("request ", Value(running.request), " continues with ", found->num_tokens, " tokens, the worker has ",
               num_generated);
    }
    // With a prefix cache, the manager may have replaced a block of the sequence by one with the same content and given
    // it away, before a slice has told the row. A manager that took the request over itself may have begun to compute
    // it again, when the row had less than the manager before it.
    if (found->is_over || options_.prefix_cache != 0 || num_managers_before_ > 1) continue;
    // The manager had begun to compute the request again, in plans that the worker has not executed.
    const auto num_blocks = static_cast<size_t>(NumBlocksFor(own->num_computed, options_.block_size));
    if (running.table.size() < num_blocks || !std::equal(running.table.begin(), running.table.begin() + num_blocks,
                                                         own->blocks.begin(), own->blocks.begin() + num_blocks)) {
      continue;
    }
    const auto table = std::find_if(restored.tables.begin(), restored.tables.end(),
                                    [&](const auto& entry) { return entry.sequence == running.sequence; });
    const int num_stored = std::min(own->num_computed, static_cast<int>(own->tokens.size()) - 1);
    if (table == restored.tables.end() || table->num_stored != num_stored) {
      Complain("request ", Value(running.request), " is computed again, the worker has ", num_stored, " tokens of it");
    }
  }
}

// Restored requests come first, in the order of their arrival, and then what was placed here before.
void SimEngine::FinishRestore() {
  if (!std::exchange(is_restoring_, false)) return;
  std::vector<Restoring> restoring = std::exchange(restoring_, {});
  running_at_death_.clear();
  // The next plan ends the rows of requests that were refused, unless they were started again here meanwhile.
  std::erase_if(refused_, [this](const auto& request) { return callers_.contains(request.first); });
  gone_.merge(std::exchange(refused_, {}));
  lost_.clear();
  std::erase_if(restoring, [](const Restoring& request) { return request.is_over; });
  report_.restored += static_cast<int64_t>(restoring.size());
  std::stable_sort(restoring.begin(), restoring.end(), [](const Restoring& a, const Restoring& b) {
    return a.caller->request().arrival_us < b.caller->request().arrival_us;
  });
  std::vector<Request> requests;
  for (const Restoring& entry : restoring) {
    const Request& request = entry.caller->request();
    requests.push_back(request);
    std::map<BlameOracle::Member, int> reached;
    int num_beam_tokens = 0;
    if (const SequenceGroup* const group = scheduler_->FindGroup(request.id); group != nullptr) {
      const bool is_search = group->beam_search() != nullptr;
      for (int i = 0; i < group->num_sequences(); ++i) {
        const Sequence& sequence = *group->sequences()[i];
        if (sequence.reached() == 0) continue;
        reached[is_search ? BlameOracle::Member{sequence.num_known_tokens(), i}
                          : BlameOracle::Member{0, sequence.sample_index()}] = sequence.reached();
      }
      if (is_search) num_beam_tokens = group->NumGeneratedTokens() - static_cast<int>(entry.num_tokens);
    }
    blame_.OnSubmitted(request.id);
    blame_.OnRestored(request.id, reached);
    report_.begun_again += entry.num_tokens == 0;
    has_searched_ |= request.beam.has_value();
    callers_.emplace(request.id, Live{entry.caller, /*is_start_checked=*/true, entry.num_tokens, num_beam_tokens,
                                      /*has_moved=*/true});
  }
  audit_->OnRestored(requests);
  scheduler_->ForEachGroup([this](const SequenceGroup& group) {
    if (!group.is_running()) return;
    for (const auto& sequence : group.sequences()) audit_->OnRunsOn(sequence->row(), sequence->id(), group.id());
  });
}

void SimEngine::OnGone(const Request& request) {
  if (options_.keeps_rows != 0 && request.record != nullptr) gone_[request.id] = *request.record;
}

void SimEngine::OnHere(RequestId request) {
  gone_.erase(request);
  for (auto& [step, requests] : ending_) requests.erase(request);
}

void SimEngine::OnExecuted(StepId step) {
  for (; !ending_.empty() && ending_.front().first <= step; ending_.pop_front()) {
    for (const auto& [request, record] : ending_.front().second) {
      if (ranks_->has_hidden_rows() || !ranks_->memory().HasRowOf(record, /*has_failed=*/false)) continue;
      Complain("request ", Value(request), " has left, and the next manager can still find it");
    }
  }
}

}  // namespace quire
