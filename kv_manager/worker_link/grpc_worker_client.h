// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_GRPC_WORKER_CLIENT_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_GRPC_WORKER_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "kv_manager/worker_link/worker_client.h"
#include "quire/v1/worker.grpc.pb.h"

namespace quire {

struct GrpcWorkerClientOptions {
  std::string address;  // host:port or unix:path.
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  // The name that the worker's certificate must have. Empty: the host of `address`.
  std::string certificate_name = "";
  // A connection that has been silent for keepalive_time_ms is probed, and given up keepalive_timeout_ms later. When a
  // process ends, its connections are closed at once; silence means that its host is gone. The times are long enough
  // for a worker that is paused or gets no processor time. Connections through unix sockets are not probed, because
  // both ends are on one host.
  int keepalive_time_ms = 20'000;
  int keepalive_timeout_ms = 30'000;
  int describe_timeout_ms = 10'000;
  int probe_timeout_ms = 1'000;  // Then the next probe may be sent.
  uint64_t term = 0;             // Term of this manager, see OpenSession. 0: it was not elected.
};

// The gRPC arguments of the connection. Pure.
grpc::ChannelArguments WorkerChannelArguments(const GrpcWorkerClientOptions& options);

// WorkerClient over WorkerService: Describe as a unary call, the session as one Steps stream. A probe asks the health
// service of the worker's port, which threads of gRPC answer; any answer counts. Answers are decoded and
// checked on gRPC's threads, which also call the listener. A worker whose
// description cannot be used is refused. All other functions are called by one thread, the step
// loop's, and never from within the listener.
class GrpcWorkerClient : public WorkerClient {
 public:
  explicit GrpcWorkerClient(const GrpcWorkerClientOptions& options);
  ~GrpcWorkerClient() override;

  void SetListener(Listener* listener) override { listener_ = listener; }
  void Describe(uint64_t epoch) override;
  void Open(uint64_t epoch, bool adopts) override;
  void SetGroup(const SessionGroup& group) override;
  void Refuse(const std::string& reason) override;
  void Send(const StepPlan& plan) override;
  void Probe(uint64_t epoch) override;
  void Close() override;

 private:
  struct DescribeCall;
  struct RefuseCall;
  struct ProbeCall;
  class Session;

  // Counts the calls that gRPC has not finished, so that the destructor can wait for the last of them. Thread-safe.
  class PendingCalls {
   public:
    void Add();
    void Remove();
    void WaitForNone();

   private:
    Mutex mutex_;
    CondVar none_;
    int count_ QUIRE_GUARDED_BY(mutex_) = 0;
  };

  void OnDescribeDone(const DescribeCall& call, const grpc::Status& status);

  const GrpcWorkerClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  Listener* listener_ = nullptr;
  PendingCalls pending_;

  // The current attempt, which ends on a thread of gRPC.
  Mutex mutex_;
  DescribeCall* describe_call_ QUIRE_GUARDED_BY(mutex_) = nullptr;  // Owned by gRPC until its callback.
  bool is_ending_ QUIRE_GUARDED_BY(mutex_) = false;                 // The destructor was called.
  RefuseCall* refuse_call_ QUIRE_GUARDED_BY(mutex_) = nullptr;      // Owned by gRPC until its callback.
  ProbeCall* probe_call_ QUIRE_GUARDED_BY(mutex_) = nullptr;        // Owned by gRPC until its callback.
  Session* session_ QUIRE_GUARDED_BY(mutex_) = nullptr;             // Owned by gRPC until OnDone.
  // The answer to the last Describe that was not given up, without the files of the tokenizer.
  WorkerDescription description_ QUIRE_GUARDED_BY(mutex_);
  SessionGroup group_ QUIRE_GUARDED_BY(mutex_);  // Of the next session. Without addresses: the worker is no rank.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_GRPC_WORKER_CLIENT_H_
