// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/worker_calls.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {
namespace {

// Blocks that a step loop frees between two plans.
constexpr int kFlushSlice = 128;

}  // namespace

// A flush goes around the step loops in slices, between which they plan. Thread-safe.
class WorkerCalls::Flush {
 public:
  Flush(const v1::FlushPrefixCacheRequest& request, const AdminCall& call)
      : worker_(request.worker()), ends_pins_(request.end_pins()), call_(call) {}

  const std::string& worker() const { return worker_; }
  const AdminCall& call() const { return call_; }

  // The next round begins: until FreeSlice says otherwise, it is the last.
  void BeginRound() {
    const MutexLock lock(&mutex_);
    has_more_ = false;
  }
  bool has_more() const {
    const MutexLock lock(&mutex_);
    return has_more_;
  }

  // The step loop of a worker calls it.
  void FreeSlice(const LoopView& loop) {
    bool is_first;
    Worker* const flushed = WorkerOf(loop.address, &is_first);
    flushed->told.set_worker(loop.address);
    if (loop.blocks == nullptr) return;
    if (is_first && ends_pins_) loop.blocks->EndPins();
    if (is_first) flushed->num_left = loop.blocks->num_cached_blocks();
    const int num_before = loop.blocks->num_cached_blocks();
    loop.blocks->EvictCached(std::min(kFlushSlice, flushed->num_left));
    const int num_freed = num_before - loop.blocks->num_cached_blocks();
    flushed->num_left = num_freed == 0 ? 0 : std::max(flushed->num_left - num_freed, 0);
    flushed->told.set_freed_blocks(flushed->told.freed_blocks() + num_freed);
    flushed->told.set_cached_blocks(loop.blocks->num_cached_blocks());
    if (flushed->num_left == 0) return;
    const MutexLock lock(&mutex_);
    has_more_ = true;
  }

  // It is called after the last round.
  v1::FlushPrefixCacheResponse Response() {
    v1::FlushPrefixCacheResponse response;
    const MutexLock lock(&mutex_);
    for (auto& [address, worker] : workers_) *response.add_workers() = std::move(worker.told);
    return response;
  }

 private:
  // Used by the step loop of this worker, and after the last round.
  struct Worker {
    v1::WorkerFlush told = {};
    int num_left = 0;  // Blocks to free at most: the number that was cached at the beginning.
  };

  Worker* WorkerOf(const std::string& address, bool* is_first) {
    const MutexLock lock(&mutex_);
    const auto [it, is_new] = workers_.try_emplace(address);
    *is_first = is_new;
    return &it->second;
  }

  const std::string worker_;
  const bool ends_pins_;  // The first slice of each worker ends them.
  const AdminCall call_;
  mutable Mutex mutex_;
  std::map<std::string, Worker> workers_ QUIRE_GUARDED_BY(mutex_);  // The key is the address.
  bool has_more_ QUIRE_GUARDED_BY(mutex_) = false;
};

void WorkerCalls::Drain(const v1::DrainRequest& request, const AdminCall& call) {
  const absl::StatusOr<int> num_requests =
      asker_->engine()->SetWorkerDraining(request.worker(), true, request.migrate());
  if (!num_requests.ok()) return call.Finish(WithWorkerReason(num_requests.status()));
  v1::DrainResponse response;
  response.set_num_requests(*num_requests);
  call.Finish(response);
}

void WorkerCalls::Undrain(const v1::UndrainRequest& request, const AdminCall& call) {
  const absl::StatusOr<int> num_requests = asker_->engine()->SetWorkerDraining(request.worker(), false);
  if (!num_requests.ok()) return call.Finish(WithWorkerReason(num_requests.status()));
  call.Finish(v1::UndrainResponse());
}

void WorkerCalls::FlushPrefixCache(const v1::FlushPrefixCacheRequest& request, const AdminCall& call) {
  FreeNextSlice(std::make_shared<Flush>(request, call));
}

void WorkerCalls::FreeNextSlice(const std::shared_ptr<Flush>& flush) {
  flush->BeginRound();
  asker_->Ask(
      flush->worker(), [flush](const LoopView& loop) { flush->FreeSlice(loop); },
      [this, flush](const absl::Status& status) {
        if (!status.ok()) return flush->call().Finish(status);
        if (flush->has_more()) return FreeNextSlice(flush);
        flush->call().Finish(flush->Response());
      });
}

}  // namespace quire
