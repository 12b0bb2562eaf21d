// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/block_watch.h"

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_reason.h"
#include "kv_manager/admin/admin_call.h"
#include "kv_manager/admin/block_calls.h"
#include "kv_manager/admin/loop_answers.h"
#include "kv_manager/rpc/grpc_status.h"
#include "kv_manager/rpc/message_bytes.h"
#include "quire/v1/inspect.pb.h"

namespace quire {

// Shared by the step loops. The destructor schedules Tell. It runs when the last step loop has dropped its pointer.
struct BlockWatch::Round {
  explicit Round(BlockWatch* watch) : watch(watch) {}
  ~Round() {
    watch->asker_->Schedule([watch = watch, status = status] { watch->Tell(status); });
  }

  BlockWatch* const watch;
  absl::Status status;  // NOT_FOUND if one worker is watched and it does not exist.
};

BlockWatch::BlockWatch(LoopAsker* asker, std::atomic<int>* num_watches, ReceiveWatch* receiving,
                       grpc::CallbackServerContext* context)
    : ReceivedCall(receiving, context), asker_(asker), num_watches_(num_watches) {}

void BlockWatch::OnRequest(const grpc::ByteBuffer& bytes) {
  v1::WatchBlocksRequest request;
  absl::Status status = ReadRequest(bytes, &request);
  worker_ = request.worker();
  interval_ms_ = request.has_interval_ms() ? request.interval_ms() : kDefaultWatchIntervalMs;
  if (status.ok()) {
    status = CheckRange("interval_ms", static_cast<uint32_t>(interval_ms_), kMinWatchIntervalMs, kMaxWatchIntervalMs);
  }
  if (!status.ok()) return End(status);
  is_counted_ = true;
  if (num_watches_->fetch_add(1) >= kMaxWatches) {
    return End(WithReason(absl::ResourceExhaustedError(absl::StrCat(
                              kMaxWatches, " calls of WatchBlocks are running, and the limit is ", kMaxWatches)),
                          "TOO_MANY_WATCHES"));
  }
  asker_->Schedule([this] { TakeSnapshot(); });
}

void BlockWatch::TakeSnapshot() {
  std::set<std::string> addresses;
  if (!worker_.empty()) addresses.insert(worker_);
  if (worker_.empty()) {
    for (const auto& worker : asker_->engine()->status().workers) addresses.insert(worker->address);
  }
  std::erase_if(workers_, [&](const auto& entry) { return !addresses.contains(entry.first); });
  for (const std::string& address : addresses) workers_[address].now.worker = address;
  const auto round = std::make_shared<Round>(this);
  for (auto& [address, worker] : workers_) {
    // A loop that cannot be asked now is asked the next time.
    worker.now.is_ready = false;
    asker_->engine()->AskWorker(
        address, [now = &worker.now](const LoopView& loop) { CopyBlocks(loop, now); },
        [round, is_only = !worker_.empty()](const absl::Status& status) {
          if (is_only && absl::IsNotFound(status)) round->status = status;
        });
  }
}

void BlockWatch::Tell(const absl::Status& status) {
  if (!status.ok()) return End(status);
  for (auto& [address, worker] : workers_) {
    const std::optional<v1::WatchBlocksResponse> response = EncodeBlocks(worker.told, worker.now);
    if (!response.has_value()) continue;
    messages_.push_back(ToBytes(*response));
    std::swap(worker.told, worker.now);
  }
  WriteOrSleep();
}

void BlockWatch::WriteOrSleep() {
  if (!messages_.empty()) return StartWrite(&messages_.front());
  {
    const MutexLock lock(&mutex_);
    if (!is_cancelled_) {
      alarm_ = std::make_unique<grpc::Alarm>();
      alarm_->Set(absl::ToChronoTime(absl::Now() + absl::Milliseconds(interval_ms_)),
                  [this](bool /*is_due*/) { asker_->Schedule([this] { TakeSnapshot(); }); });
      return;
    }
  }
  End(absl::CancelledError("the client has left"));
}

void BlockWatch::OnWriteDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the client has left"));
  messages_.pop_front();
  WriteOrSleep();
}

// Whatever is under way ends the call when it comes to its next message or pause.
void BlockWatch::OnCancel() {
  const MutexLock lock(&mutex_);
  is_cancelled_ = true;
  if (alarm_ != nullptr) alarm_->Cancel();
}

void BlockWatch::OnDone() {
  StopCounting();
  delete this;
}

void BlockWatch::StopCounting() {
  if (std::exchange(is_counted_, false)) num_watches_->fetch_sub(1);
}

// A caller that has heard of the end may start another call in the place of this one.
void BlockWatch::End(const absl::Status& status) {
  StopCounting();
  Finish(ToGrpcStatus(status, context()));
}

}  // namespace quire
