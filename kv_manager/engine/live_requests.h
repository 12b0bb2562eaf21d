// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_LIVE_REQUESTS_H_
#define QUIRE_KV_MANAGER_ENGINE_LIVE_REQUESTS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/cache_groups.h"
#include "base/ids.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/tenant_quotas.h"
#include "kv_manager/engine/wait_meter.h"
#include "kv_manager/engine/worker_status.h"
#include "scheduler/request.h"
#include "scheduler/scheduler.h"

namespace quire {

struct StepLoopOptions;

// The pins that a request wants. They outlive the prompt, because the request may end with its first token.
struct RequestPins {
  std::string tenant;
  std::string salt;
  std::vector<TokenId> tokens;  // The longest prefix.
  std::vector<Request::PrefixPin> pins;
};

// Makes the pins and returns how many tokens each of them holds. [pins.pins]
using PinMaker = absl::FunctionRef<std::vector<int>(const RequestPins& pins)>;

// The requests of one step loop that have not ended: where their events go, and the times that the statistics need.
// Owned by the step-loop thread.
class LiveRequests {
 public:
  // What the loop knows about a request that it has given to the scheduler.
  struct Entry {
    std::shared_ptr<RequestSink> sink;
    int64_t arrival_us = 0;
    int64_t deadline_us = std::numeric_limits<int64_t>::max();
    int num_prompt_tokens = 0;
    int num_cached_tokens = 0;  // The part of the prompt that was in the prefix cache when it started.
    int max_tokens = 0;
    int num_outputs = 1;  // Samples, or the hypotheses that a beam search returns.
    int num_rows = 1;     // Samples, or beams.
    int tenant_slot = 0;  // The index in stats->tenants.
    int64_t num_generated_tokens = 0;
    bool is_prompt_only = false;  // Its only token is dropped, and does not count.
    int longest_output = 0;       // Tokens of the longest sample or hypothesis.
    // Number of tokens in the beams of a search that moves, beyond the tokens that it has emitted.
    int num_beam_tokens = 0;
    int64_t start_us = 0;  // The time when its first plan was sent.
    int64_t first_token_us = 0;
    std::vector<int64_t> last_token_us = {};  // Each sample has an entry.
    bool has_started = false;
    bool was_running = false;                        // When a worker was lost, which may have begun it.
    bool is_restorable = false;                      // See IsRestorable.
    std::optional<int64_t> moved_us = std::nullopt;  // When it has come from another loop.
    std::unique_ptr<RequestPins> pins = nullptr;     // Null: it wants none, or they are made.
    // Number of blocks for its tokens and the next one. They count as wanted until the request starts, or runs after it
    // has moved here. 0: they do not count any more.
    int64_t wanted_blocks = 0;
    std::unique_ptr<TenantQuotas::Ticket> ticket = nullptr;  // Null: nobody counts the requests of its tenant.
  };

  // Both are borrowed. The list of tenants in `stats` grows when a request of a new tenant comes. `wait` learns how
  // many tokens requests generate.
  LiveRequests(StepLoopStats* stats, WaitMeter* wait) : stats_(stats), wait_(wait) {}

  // The pool has these groups from here on. Called before the first Add, and whenever the pool is replaced.
  void SetGroups(const CacheGroups& groups);

  // What a loop with these options knows about a request that has just come, with the tokens that its client has sent.
  static Entry EntryOf(const Request& request, std::shared_ptr<RequestSink> sink,
                       std::unique_ptr<TenantQuotas::Ticket> ticket, const StepLoopOptions& options);

  // `entry.wanted_blocks` is set here.
  void Add(RequestId request, Entry entry);
  // Gives away the entry of a request, which continues in another loop. REQUIRES: the request is known.
  Entry Take(RequestId request);
  // Adds the entry of a request that another loop has given away. It is not counted again.
  void Adopt(RequestId request, Entry entry);
  // The request was refused: it is reported by TakeEnded like one that has ended.
  void AddRefused(RequestId request) { ended_.push_back(request); }

  // Passes the output of a step, which was sent at `sent_us`, to the sinks. Removes the requests that have finished.
  // The first tokens of requests come before all other tokens, because they are waited for most. Before its first
  // token, `make_pins` makes the pins of a request.
  void Deliver(StepOutput output, int64_t sent_us, int64_t now_us, PinMaker make_pins);
  // Ends the request without an event. It counts as ended for this reason. Returns false when it is unknown.
  bool Drop(RequestId request, FinishReason reason, int64_t now_us);
  // Ends the request with this error, if it is known.
  void Fail(RequestId request, const absl::Status& status);
  // The same for a waiting request that gives its place in the queue to another one.
  void Displace(RequestId request, const absl::Status& status);
  // The worker is lost while it runs the requests for which `is_running` holds.
  void NoteLoss(absl::FunctionRef<bool(RequestId)> is_running);
  // Ends every request with the error that `status_of` returns. Returns their ids.
  std::vector<RequestId> FailAll(absl::FunctionRef<absl::Status(const Entry&)> status_of);
  // Ends every restorable request with this error. They do not count as failed, because the next manager continues
  // them. Returns their ids.
  std::vector<RequestId> LeaveRestorable(const absl::Status& status);

  // The requests that have ended, for whatever reason, since the last call.
  std::vector<RequestId> TakeEnded() { return std::exchange(ended_, {}); }

  // Fails the requests whose deadline is at or before `now_us`. `cause` says why they do not run, or is empty. Returns
  // their ids, earliest deadline first.
  std::vector<RequestId> Expire(int64_t now_us, const std::string& cause);
  int64_t next_deadline_us() const;  // kNever when there is none.
  // Fails the requests whose deadline comes within a step, which takes `step_us`, if `is_waiting` is true for them.
  // Returns their ids.
  std::vector<RequestId> GiveUp(int64_t now_us, int64_t step_us, absl::FunctionRef<bool(RequestId)> is_waiting);

  // The requests that have come from another loop or an earlier manager, and that run now, do not count as wanted any
  // more: their blocks are allocated.
  void StopWantingIf(absl::FunctionRef<bool(RequestId)> is_running);

  // When the request has come from another loop. Nothing when it has not, or is not known.
  std::optional<int64_t> MovedAt(RequestId request) const;
  // Borrowed until the request leaves. REQUIRES: the request is known.
  RequestSink* SinkOf(RequestId request) const;

  // The ids of all requests, by falling number of generated tokens.
  std::vector<RequestId> ByProgress() const;

  int size() const { return static_cast<int>(entries_.size()); }
  int num_restorable() const { return num_restorable_; }
  // The sum over the requests that have not started here, or have moved here and do not run yet.
  int64_t wanted_blocks() const { return wanted_blocks_; }
  // The rows of all requests.
  int num_rows() const { return num_rows_; }
  // The tokens of the prompt and of all samples or beams.
  static int NumTokens(const Entry& entry) {
    return static_cast<int>(entry.num_prompt_tokens + entry.num_generated_tokens) + entry.num_beam_tokens;
  }

 private:
  using Entries = absl::flat_hash_map<RequestId, Entry>;

  int64_t WantedBlocks(const Entry& entry) const;
  void StopWanting(Entry* entry);
  void Start(Entry* entry, int num_cached_tokens, int64_t sent_us);
  void EmitAll(std::vector<Emission> emissions, int64_t now_us, PinMaker make_pins);
  void Emit(Emission emission, int64_t now_us, Entry* to);
  void Finish(const Finished& finished, int64_t now_us);
  void ObserveEnd(const Entry& entry, int64_t now_us);
  static double TokensPerOutput(const Entry& entry);
  void EndWith(Entries::iterator it, const absl::Status& status);
  Entry& Insert(RequestId request, Entry entry);
  Entry Extract(Entries::iterator it);
  // Extracts the entry and reports the request as ended.
  void Remove(Entries::iterator it);

  StepLoopStats* const stats_;
  WaitMeter* const wait_;
  Entries entries_;
  std::set<std::pair<int64_t, RequestId>> deadlines_;  // Requests without a deadline are not here.
  std::vector<RequestId> moved_;  // Requests whose blocks may still count as wanted; some may have left.
  CacheGroups groups_{/*block_size=*/1};
  int64_t wanted_blocks_ = 0;
  int num_rows_ = 0;
  int num_restorable_ = 0;
  std::vector<RequestId> ended_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_LIVE_REQUESTS_H_
