#ifndef QUIRE_KV_MANAGER_ENGINE_LIVE_REQUESTS_H_
#define QUIRE_KV_MANAGER_ENGINE_LIVE_REQUESTS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/worker_status.h"
#include "scheduler/request.h"
#include "scheduler/scheduler.h"

namespace quire {

// The requests of one step loop that have not ended: where their events go and when what happened to them. Owned by the
// step-loop thread.
class LiveRequests {
 public:
  // What remains to be known of a request once the scheduler has it.
  struct Entry {
    std::shared_ptr<RequestSink> sink;
    int64_t arrival_us = 0;
    int64_t deadline_us = std::numeric_limits<int64_t>::max();
    int wanted_blocks = 0;  // Counted as wanted until the request starts or ends.
    int num_prompt_tokens = 0;
    int tenant_slot = 0;  // Of stats->tenants.
    int64_t num_generated_tokens = 0;
    int64_t start_us = 0;  // When its first plan was sent.
    int64_t first_token_us = 0;
    std::vector<int64_t> last_token_us = {};  // By sample.
    bool started = false;
  };

  // `stats` is borrowed; tenants get their slots there as their requests come.
  explicit LiveRequests(StepLoopStats* stats) : stats_(stats) {}

  void Add(RequestId request, Entry entry);
  // The request was refused: it is reported by TakeEnded like one that has ended.
  void AddRefused(RequestId request) { ended_.push_back(request); }

  // Passes on what a step, sent at `sent_us`, has brought; requests that finished are gone afterwards.
  void Deliver(StepOutput output, int64_t sent_us, int64_t now_us);
  // The request ends without an event, and counts as ended for this reason. False when it is unknown.
  bool Drop(RequestId request, FinishReason reason, int64_t now_us);
  // Every request ends with this error. Returns which they were.
  std::vector<RequestId> FailAll(const absl::Status& status);

  // Those that have ended since the last call, however they did.
  std::vector<RequestId> TakeEnded() { return std::exchange(ended_, {}); }

  // Requests whose deadline is at or before `now_us` fail. Returns which they were, earliest first.
  std::vector<RequestId> Expire(int64_t now_us);
  int64_t next_deadline_us() const;  // The largest integer when there is none.

  int size() const { return static_cast<int>(entries_.size()); }
  // Sum over the requests that have not started.
  int64_t wanted_blocks() const { return wanted_blocks_; }

 private:
  using Entries = absl::flat_hash_map<RequestId, Entry>;

  void Start(Entry* entry, int num_cached_tokens, int64_t sent_us);
  void Emit(Emission emission, int64_t now_us);
  void Finish(const Finished& finished, int64_t now_us);
  void ObserveEnd(const Entry& entry, int64_t now_us);
  void Remove(Entries::iterator it);

  StepLoopStats* const stats_;
  Entries entries_;
  std::set<std::pair<int64_t, RequestId>> deadlines_;  // Of those that have one.
  int64_t wanted_blocks_ = 0;
  std::vector<RequestId> ended_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_LIVE_REQUESTS_H_
