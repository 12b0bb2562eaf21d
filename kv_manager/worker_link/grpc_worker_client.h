#ifndef QUIRE_KV_MANAGER_WORKER_LINK_GRPC_WORKER_CLIENT_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_GRPC_WORKER_CLIENT_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "kv_manager/worker_link/worker_client.h"
#include "quire/v1/worker.grpc.pb.h"

namespace quire {

struct GrpcWorkerClientOptions {
  std::string address;  // host:port or unix:path.
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  std::string certificate_name = "";  // That the worker's certificate must have; empty: the host of `address`.
  // A connection that has been silent for keepalive_time_ms is probed, and given up keepalive_timeout_ms later. Only a
  // host that is gone shows itself by silence: the end of a process closes its connections. So this is long enough for
  // a worker that is paused or starved, and unix sockets, which have one host, are not probed.
  int keepalive_time_ms = 20'000;
  int keepalive_timeout_ms = 30'000;
  int describe_timeout_ms = 10'000;
};

// How the connection is made. Pure.
grpc::ChannelArguments WorkerChannelArguments(const GrpcWorkerClientOptions& options);

// WorkerClient over WorkerService: Describe as a unary call, the session as one Steps stream. Answers are decoded and
// checked on gRPC's threads, which also call the listener. All other calls come from one thread, the step loop's, and
// never from within the listener.
class GrpcWorkerClient : public WorkerClient {
 public:
  explicit GrpcWorkerClient(const GrpcWorkerClientOptions& options);
  ~GrpcWorkerClient() override;

  void SetListener(Listener* listener) override { listener_ = listener; }
  void Describe(uint64_t epoch) override;
  void Open(uint64_t epoch) override;
  void Send(const StepPlan& plan) override;
  void Close() override;

 private:
  struct DescribeCall;
  class Session;

  // Counts the calls that gRPC has not let go of, so that the destructor can wait for the last of them.
  class PendingCalls {
   public:
    void Add();
    void Remove();
    void WaitForNone();

   private:
    std::mutex mutex_;
    std::condition_variable none_;
    int count_ = 0;
  };

  void OnDescribeDone(const DescribeCall& call, const grpc::Status& status);

  const GrpcWorkerClientOptions options_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  Listener* listener_ = nullptr;
  PendingCalls pending_;

  // The attempt under way, which ends on gRPC's threads. Guarded by mutex_.
  std::mutex mutex_;
  DescribeCall* describe_call_ = nullptr;  // Owned by gRPC until its callback.
  Session* session_ = nullptr;             // Owned by gRPC until OnDone.
  int vocab_size_ = 0;                     // As of the answer to the last Describe that was not given up.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_GRPC_WORKER_CLIENT_H_
