// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_MANAGER_LINK_BATCH_CALL_H_
#define QUIRE_GATEWAY_MANAGER_LINK_BATCH_CALL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire {

// Runs a function soon on the thread that owns the objects of this folder, in the order of the calls. Thread-safe.
using Executor = std::function<void(std::function<void()> function)>;

// Gets what the manager sends for one request. The last entry has an end.
using EntryHandler = std::function<void(const v1::GenerateBatchEntry& entry)>;

// The end of what was given up because the manager is silent.
google::rpc::Status SilentError();

// One call of GenerateBatch. gRPC's threads only hand events over to the owner's thread, on which everything else runs.
// The next message is read when the one before it was handled, so an owner that is behind holds at most one.
//
// A message may have a token for each of many requests. The first tokens among them are handled first, because they are
// waited for most. After kMaxEntriesAtOnce, other work of the owner's thread gets its turn.
class BatchCall : public std::enable_shared_from_this<BatchCall> {
 public:
  // `authorization` is sent with the call, unless it is empty. `ended` is called when the call is over, before its
  // requests get their ends. `pending` is released when gRPC is done with the call.
  static std::shared_ptr<BatchCall> Start(v1::InferenceService::Stub* stub, const std::string& authorization,
                                          Executor executor, std::function<void(BatchCall* call)> ended,
                                          std::shared_ptr<void> pending);

  // Sends a message with a new tag, which starts or resumes a request. `handler` is called until the end of the
  // request. REQUIRES: !is_over().
  void Send(std::shared_ptr<const v1::GenerateBatchRequest> message, EntryHandler handler);

  // The request ends, and its handler is not called any more. If its message is not under way yet, it is not sent.
  void Cancel(uint64_t tag);

  // Ends the call, and so all requests.
  void End() { context_.TryCancel(); }
  // Does the same when the executor runs nothing any more. Handlers are not called any more.
  void Abandon();
  // Ends the call, and the requests end with UNAVAILABLE, so that they may go to another manager.
  void GiveUp() {
    is_given_up_ = true;
    End();
  }

  // Returns whether the call takes no more requests.
  bool is_over() const { return is_over_; }
  size_t num_requests() const { return running_.size(); }
  // Returns how many requests the manager may count: those that run, and those that were cancelled and whose ends have
  // not come yet.
  size_t num_counted_requests() const { return running_.size() + cancelled_.size(); }

  static constexpr int kMaxEntriesAtOnce = 16;
  // Number of positions whose logprobs take about as long as an entry.
  static constexpr int kPositionsPerEntry = 16;

 private:
  // A request that has not ended.
  struct Running {
    EntryHandler handler;
    bool has_begun = false;  // An entry was handled.
  };

  // Joins gRPC's callbacks to the call.
  class Reactor : public grpc::ClientBidiReactor<v1::GenerateBatchRequest, v1::GenerateBatchResponse> {
   public:
    explicit Reactor(BatchCall* call) : call_(call) {}
    void OnReadDone(bool ok) override { call_->Post(ok ? &BatchCall::OnRead : &BatchCall::OnStreamEnd); }
    void OnWriteDone(bool ok) override {
      if (ok) call_->Post(&BatchCall::OnWritten);
    }
    void OnDone(const grpc::Status& status) override { call_->PostEnd(status); }

   private:
    BatchCall* const call_;
  };

  BatchCall(Executor executor, std::function<void(BatchCall* call)> ended)
      : executor_(std::move(executor)), ended_(std::move(ended)) {}

  void Post(void (BatchCall::*event)());
  void PostEnd(const grpc::Status& status);
  void OnRead();
  void HandleEntries();
  void OnStreamEnd();
  void OnWritten();
  void OnEnd(const google::rpc::Status& status);
  void Write();

  const Executor executor_;
  const std::function<void(BatchCall* call)> ended_;
  grpc::ClientContext context_;
  Reactor reactor_{this};
  std::shared_ptr<void> pending_;                   // See Start.
  std::shared_ptr<BatchCall> self_;                 // Set until gRPC has said that the call is over.
  absl::flat_hash_map<uint64_t, Running> running_;  // The key is the tag.
  absl::flat_hash_set<uint64_t> cancelled_;         // Tags whose ends the manager has not sent yet.
  // The first one is being written if is_writing_.
  std::deque<std::shared_ptr<const v1::GenerateBatchRequest>> unsent_;
  v1::GenerateBatchResponse response_;
  int next_entry_ = 0;  // The first one of response_ that was not handled.
  bool is_writing_ = false;
  bool is_over_ = false;
  bool is_given_up_ = false;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_MANAGER_LINK_BATCH_CALL_H_
