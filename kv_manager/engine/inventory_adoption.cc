// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/inventory_adoption.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/status_reason.h"
#include "kv_manager/engine/inventory_check.h"
#include "kv_manager/engine/restore_request.h"
#include "kv_manager/engine/revival.h"

namespace quire {
namespace {

// The time since the last step of one of its samples.
int64_t IdleTimeOf(const RowsOfRequest& rows) {
  int64_t idle_us = rows.first->idle_us;
  for (const WorkerInventory::Row* row : rows.rows) idle_us = std::min(idle_us, row->idle_us);
  return idle_us;
}

// The client has the tokens that are needed to continue.
absl::Status FirstTokensLostError() {
  return WithReason(absl::NotFoundError("the request began with other numerics than its worker has, and the worker has "
                                        "lost a part of it while the manager was started again"),
                    "REQUEST_UNKNOWN", {{"resubmit_ok", "true"}});
}

// Tells the stream what the request has become so far.
void TellStream(const Request& request, const Revival& revival, RequestSink* sink) {
  const int num_prompt_tokens = static_cast<int>(request.prompt.size());
  sink->OnStarted(revival.request.num_cached_tokens);
  if (!revival.samples.empty() && !revival.request.prompt_scores.empty()) {
    sink->OnPromptLogprobs(1, revival.request.prompt_scores);
  }
  for (int i = 0; revival.has_changed_numerics && i < NumOutputs(request); ++i) {
    sink->OnNumericsChanged(i, num_prompt_tokens);
  }
  size_t num_ended = 0;
  for (const Revival::Sample& sample : revival.samples) {
    int position = num_prompt_tokens;
    if (sample.numerics_changed_at.has_value()) sink->OnNumericsChanged(sample.index, *sample.numerics_changed_at);
    for (const ScoredToken& token : sample.generated) sink->OnToken(sample.index, position++, token);
    if (!sample.end.has_value()) continue;
    ++num_ended;
    sink->OnFinished({request.id, sample.index, *sample.end, num_ended == revival.samples.size()});
  }
}

class Adoption {
 public:
  Adoption(const AdoptingLoop& loop, const WorkerInventory& inventory, int64_t now_us)
      : loop_(loop),
        inventory_(inventory),
        now_us_(now_us),
        check_(inventory, loop.worker->num_blocks, loop.worker->block_size) {}

  void Run() {
    std::vector<MovedRequest> waiting = scheduler()->TakeAll();
    std::vector<const WorkerInventory::Row*> others;
    const std::vector<RowsOfRequest> found = FindRequests(inventory_, &others);
    for (const WorkerInventory::Row* row : others) {
      if (!row->record.empty()) end_rows_.push_back(row->row);
    }
    for (const RowsOfRequest& rows : found) Take(rows);
    Install();
    for (MovedRequest& request : waiting) {
      const RequestId id = request.id();
      const absl::Status status = scheduler()->Adopt(std::move(request));
      if (!status.ok()) loop_.live->Fail(id, status);
    }
    loop_.stats->restored_requests += static_cast<int64_t>(streams_.size());
    Log(found.size());
  }

 private:
  Scheduler* scheduler() const { return loop_.pool->scheduler(); }

  // Continues a request, or ends its rows.
  void Take(const RowsOfRequest& rows) {
    absl::StatusOr<RequestRestored> restored = Ask(rows);
    Revival revival;
    absl::Status status = restored.status();
    if (status.ok()) {
      revival = Revive(restored->request, loop_.worker->vocab_size, rows, check_, restored->is_over);
      status = Keep(*restored, revival);
    }
    if (!status.ok()) {
      const bool is_forgotten = absl::IsDeadlineExceeded(status);
      num_forgotten_ += is_forgotten;
      if (!is_forgotten) refusal_ = status;
      for (const WorkerInventory::Row* row : rows.rows) end_rows_.push_back(row->row);
      return;
    }
    const RequestId id = restored->request.id;
    // Before the stream is told anything, because it may end the request or a sample at once.
    if (!revival.is_over) loop_.inbox->AddRestored(id);
    if (restored->ticket != nullptr) restored->ticket->OnStarted();
    TellStream(restored->request, revival, restored->sink.get());
    end_rows_.insert(end_rows_.end(), revival.end_rows.begin(), revival.end_rows.end());
    if (revival.is_over) {
      scheduler()->KeepRows(id, revival.request.ended_rows);
      ++num_over_;
      return;
    }
    num_begun_again_ += revival.samples.empty();
    streams_.emplace_back(id, std::move(restored->has_ended));
    loop_.live->Adopt(id, EntryOf(revival, *std::move(restored)));
    next_blocks_.insert(revival.next_blocks.begin(), revival.next_blocks.end());
    std::move(revival.tables.begin(), revival.tables.end(), std::back_inserter(blocks_.tables));
    requests_.push_back(std::move(revival.request));
  }

  absl::StatusOr<RequestRestored> Ask(const RowsOfRequest& rows) const {
    if (loop_.hooks->restore_request == nullptr) {
      return absl::UnimplementedError("this manager restores no requests");
    }
    return loop_.hooks->restore_request(
        {.record = rows.record.request,
         .prompt = absl::MakeSpan(rows.first->tokens).first(rows.first->prompt_length),
         .idle_us = IdleTimeOf(rows),
         .is_over = [&rows](const Request& request,
                            const StopCondition* stop_strings) { return IsOver(request, rows, stop_strings); },
         .generation = loop_.generation});
  }

  // Makes the stream known to its client. The error says why the request does not continue here.
  static absl::Status Keep(const RequestRestored& restored, const Revival& revival) {
    if (revival.is_lost) {
      restored.sink->OnFailed(FirstTokensLostError());
      return FirstTokensLostError();
    }
    if (restored.keep == nullptr) return absl::OkStatus();
    return restored.keep(CopyOf(revival, NumOutputs(restored.request)));
  }

  // Returns what the loop knows about the request. The stream has been told the same.
  LiveRequests::Entry EntryOf(const Revival& revival, RequestRestored restored) const {
    const Request& request = restored.request;
    LiveRequests::Entry entry =
        LiveRequests::EntryOf(request, std::move(restored.sink), std::move(restored.ticket), *loop_.options);
    entry.num_cached_tokens = revival.request.num_cached_tokens;
    entry.start_us = entry.first_token_us = now_us_;
    entry.last_token_us.assign(request.num_samples, now_us_);
    entry.has_started = true;
    for (const Revival::Sample& sample : revival.samples) {
      entry.num_generated_tokens += static_cast<int64_t>(sample.generated.size());
    }
    if (!revival.request.search.has_value()) return entry;
    int num_tokens = 0;
    for (const RestoredRequest::Sample& beam : revival.request.samples) {
      num_tokens += static_cast<int>(beam.tokens.size() - request.prompt.size());
    }
    entry.num_beam_tokens = num_tokens - static_cast<int>(entry.num_generated_tokens);
    return entry;
  }

  // Gives the requests that continue to the scheduler and the block manager.
  void Install() {
    blocks_.cached = check_.CachedBlocks(blocks_.tables, std::move(next_blocks_));
    scheduler()->SkipTo(LastSequence(inventory_));
    loop_.pool->blocks()->Restore(blocks_);
    std::stable_sort(requests_.begin(), requests_.end(), [](const RestoredRequest& a, const RestoredRequest& b) {
      return a.request.arrival_us < b.request.arrival_us;
    });
    for (const auto& [id, status] : scheduler()->Restore(std::move(requests_))) loop_.live->Fail(id, status);
    scheduler()->EndRows(end_rows_);
    for (const auto& [id, has_ended] : streams_) {
      if (has_ended != nullptr && has_ended()) loop_.inbox->Cancel(id, FinishReason::kCancelled);
    }
  }

  void Log(size_t num_found) const {
    const size_t num_refused = num_found - streams_.size() - num_over_ - num_forgotten_;
    QUIRE_LOG(kInfo) << "worker " << Named("worker", loop_.options->address) << " had " << Counted(num_found, "request")
                     << " of another manager: " << streams_.size() - num_begun_again_ << " continue, "
                     << num_begun_again_ << " restart, " << num_over_ << " had ended and can be resumed, "
                     << num_forgotten_ << " had ended too long ago, " << num_refused << " were refused"
                     << (refusal_.ok() ? "" : absl::StrCat(" (", refusal_.message(), ")")) << "; "
                     << loop_.pool->blocks()->num_cached_blocks() << " blocks are cached";
  }

  const AdoptingLoop loop_;
  const WorkerInventory& inventory_;
  const int64_t now_us_;
  const InventoryCheck check_;
  std::vector<RestoredRequest> requests_;
  // It has RequestRestored::has_ended of each request that has one.
  std::vector<std::pair<RequestId, std::function<bool()>>> streams_;
  RestoredBlocks blocks_;
  absl::flat_hash_set<BlockId> next_blocks_;  // See Revival.
  std::vector<RowId> end_rows_;
  int num_over_ = 0;
  int num_forgotten_ = 0;
  int num_begun_again_ = 0;
  absl::Status refusal_;  // The last one.
};

}  // namespace

void AdoptInventory(const AdoptingLoop& loop, const WorkerInventory& inventory, int64_t now_us) {
  Adoption(loop, inventory, now_us).Run();
}

}  // namespace quire
