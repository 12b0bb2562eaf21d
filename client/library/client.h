// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LIBRARY_CLIENT_H_
#define QUIRE_CLIENT_LIBRARY_CLIENT_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/library/generate_batch_stream.h"
#include "client/library/manager_links.h"
#include "client/policy/call_policy.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/admin.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "security/tls_files.h"

namespace quire {

// Converts a gRPC status to an absl status. The server's google.rpc details are appended to the message: further field
// violations as "field: description", and after how long to try again.
absl::Status FromGrpcStatus(const grpc::Status& status);

// Returns the status with its details, which only a manager's own errors have.
google::rpc::Status RpcStatusOf(const grpc::Status& status);

// Converts the status with which a request of GenerateBatch ended.
absl::Status FromRpcStatus(const google::rpc::Status& status);

// Returns true when no server has sent the status, because none could be reached or the connection was lost. The
// message is gRPC's.
bool IsConnectionError(const absl::Status& status);

// Returns true when a manager has refused the call because it stands by: another manager leads, or none does yet.
bool IsStandbyError(const absl::Status& status);

// Returns true when a manager has no worker for the call: none has joined yet, or it was lost.
bool IsNoWorkerError(const absl::Status& status);

class GenerateStreams;

// A running Generate call. Destruction ends the call, and the server frees its blocks in the next step.
//
// When the client has several managers, a call that none has begun goes to the next one if its manager stands by, stops
// or cannot be reached. While one stands by or stops and none leads, it asks again for 30 seconds.
//
// When on_disconnect of the request is ON_DISCONNECT_DETACH, the stream resumes by itself after its connection was
// lost: Next returns every token once, as if nothing had happened. It tries again for 30 seconds without progress, and
// not after the timeout; then Finish returns how the connection was lost. A request without a request_id cannot be
// resumed before its first response. When the manager does not know the request any more, it is sent again with what
// was received (continue_from), unless it is a beam search or has best_of above n. A request that already has
// continue_from is sent again after a loss, with what was received since, whatever its on_disconnect. Destruction and
// Cancel end only the call, and the request waits for --detach-grace; Client::Abort ends it at once. A manager that is
// too old to know on_disconnect gets the request without it, and then the stream does not resume.
//
// It is not thread-safe, except that Cancel may be called from any thread. The connection is read by the threads that
// wait in Next, so each response of each stream wakes a thread. For many calls at a time, see GenerateStreams.
//
// It is declared here because Client creates it, and defined in generate_stream.cc.
class GenerateStream {
 public:
  // Borrows `links`.
  GenerateStream(ManagerLinks* links, const v1::GenerateRequest& request, absl::Duration timeout);
  ~GenerateStream();

  // How long a stream that resumes tries without progress. A call that a manager has taken is progress.
  static constexpr absl::Duration kResumeTime = absl::Seconds(30);

  // Next calls `tell` once for each loss of the connection from which the stream has not recovered after 2 seconds,
  // while it still tries. Call it before Next.
  void OnLoss(std::function<void()> tell) { on_loss_ = std::move(tell); }

  // Waits for the next response. Returns false at the end of the stream; Finish then returns how it ended.
  bool Next(v1::GenerateResponse* response);

  // REQUIRES: Next has returned false, or Cancel was called.
  absl::Status Finish();

  void Cancel();

 private:
  friend class GenerateStreams;

  // Makes a stream whose calls GenerateStreams starts and reads. The events of its calls come to `queue`, with `tag`.
  GenerateStream(ManagerLinks* links, const v1::GenerateRequest& request, absl::Duration timeout,
                 grpc::CompletionQueue* queue, void* tag);

  // Starts a call that continues the stream at its position.
  void Call();
  // Notes a response that was read. Returns false, and sets finished_, when its tokens were received before.
  bool Take(const v1::GenerateResponse& response);
  void Note(const v1::GenerateResponse& response);
  // A call has ended. Decides what follows, in action_ or finished_, and returns whether Continues can wait.
  bool Decide(const grpc::Status& status);
  // Does what was decided, and waits as long as that says. Returns true when another call may be made, and sets
  // finished_ otherwise.
  bool Continues();
  // Makes request_ one that continues the stream, which the manager does not know any more.
  void Continue();
  // Makes request_ continue all that was received.
  void SetContinued();
  // Returns false when the stream was cancelled.
  bool Wait(absl::Duration delay);
  bool has_no_connection() const;
  // Waits for a connection after a call that found none, and returns whether the call may be sent again, which is done
  // once. gRPC before 1.61 reads errno too late, and may take an attempt to connect that is still running for one that
  // has failed. The manager has not got such a call.
  bool MaySendUnreachedAgain();
  bool is_cancelled() const;

  ManagerLinks* const links_;
  grpc::CompletionQueue* const queue_;        // Null if Next reads the calls.
  void* const tag_;                           // Tag of all events in the queue.
  const ManagerLinks::Link* link_ = nullptr;  // Link of the last call.
  v1::GenerateRequest request_;
  const absl::Time deadline_;
  CallPolicy policy_;
  CallAction action_;                                // What follows the call that has ended.
  std::string resume_token_;                         // Empty until the first response.
  std::map<uint32_t, v1::ReceivedSample> received_;  // By index.
  // Continue needs what was received of each sample, by index, and what the first responses have said.
  std::map<uint32_t, v1::ContinuedSample> continued_;
  std::string numerics_;
  std::optional<uint64_t> seed_;          // Of the sample with index 0.
  std::function<void()> on_loss_;         // May be empty.
  absl::Time told_loss_at_;               // When the last loss that on_loss_ was told of began.
  bool was_sent_again_ = false;           // After a call that had found no connection.
  std::optional<absl::Status> finished_;  // Set without a call when the request cannot be sent.

  mutable Mutex mutex_;
  CondVar cancelled_;
  // It belongs to the call that is read, and outlives its reader.
  std::unique_ptr<grpc::ClientContext> context_ QUIRE_GUARDED_BY(mutex_);
  bool is_cancelled_ QUIRE_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;              // Without a queue.
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> queued_reader_;  // With a queue.
};

// A running WatchBlocks call. Destruction ends it. Not thread-safe.
class WatchBlocksStream {
 public:
  WatchBlocksStream(v1::AdminService::Stub* stub, const v1::WatchBlocksRequest& request, absl::Duration timeout);
  ~WatchBlocksStream();

  // Waits for the next message. Returns false at the end of the stream; Finish then returns how it ended.
  bool Next(v1::WatchBlocksResponse* message);

  // Returns how the call ended. A call that is still running is cancelled and ends with CANCELLED.
  absl::Status Finish();

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchBlocksResponse>> reader_;
  bool has_ended_ = false;                // Next has returned false.
  std::optional<absl::Status> finished_;  // Set without a call when the request cannot be sent.
};

struct ClientOptions {
  // The address of the manager, or the addresses of several managers of which one leads, separated by commas. See
  // CheckEndpoints.
  std::string endpoint = "127.0.0.1:50051";
  absl::Duration timeout = absl::Seconds(10);  // Deadline of the calls that do not stream.
  TlsFiles tls = {};                           // Files of TLS; without an authority calls are in plain text.
  std::string token = "";                      // Bearer token, see HeaderToken; empty means none.
  std::string server_name = "";                // Name in the manager's certificate; empty means the endpoint's host.
};

// Makes the channel of a client, which connects when it is used first and again when it was lost. An attempt to connect
// ends after `connect_timeout`, and calls that wait for it then fail; the default is gRPC's.
// REQUIRES: CheckTlsFiles(options.tls) is OK, and the endpoint is one address.
std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options,
                                           absl::Duration connect_timeout = absl::Seconds(20));

// A blocking client of one manager, or of several ones of which one leads. Calls go to the leader: when a manager
// stands by, stops or cannot be reached, the client asks the next one, until the deadline of the call, or until no
// manager can be reached. A call of AdminService, GenerateBatch and WatchBlocks first asks once around who leads. If
// none does, it goes to the manager whose turn is next, usually the one that was asked first, because managers that
// stand by answer AdminService too. Thread-safe. Every call returns INVALID_ARGUMENT, and sends nothing, when a string
// of its request is not UTF-8 or when a header cannot carry the token.
class Client {
 public:
  // REQUIRES: CheckTlsFiles(options.tls) is OK.
  explicit Client(const ClientOptions& options);

  // `timeout` limits the whole call, from the first to the last token.
  std::unique_ptr<GenerateStream> Generate(const v1::GenerateRequest& request, absl::Duration timeout);

  // One thread reads many Generate calls from it. It borrows the client.
  std::unique_ptr<GenerateStreams> GenerateMany();

  // Starts a call for many requests. The call has no deadline of its own.
  std::unique_ptr<GenerateBatchStream> GenerateBatch();

  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request);
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request);
  // Returns the embeddings of all inputs, in their order. One input that is wrong fails the call.
  absl::StatusOr<v1::EmbedResponse> Embed(const v1::EmbedRequest& request);
  // Returns the prompt that a conversation becomes.
  absl::StatusOr<v1::RenderChatResponse> RenderChat(const v1::Chat& chat);
  absl::StatusOr<v1::GetModelResponse> GetModel();
  // `timeout` can only shorten the timeout of the options.
  absl::Status Abort(const std::string& request_id, absl::Duration timeout = absl::InfiniteDuration());
  absl::StatusOr<v1::GetStatusResponse> GetStatus();
  absl::StatusOr<v1::ExplainWaitResponse> ExplainWait(const std::string& request_id);
  absl::StatusOr<v1::PinPrefixResponse> PinPrefix(const v1::PinPrefixRequest& request);
  absl::StatusOr<v1::UnpinPrefixResponse> UnpinPrefix(const v1::UnpinPrefixRequest& request);

  // `timeout` limits the whole call.
  std::unique_ptr<WatchBlocksStream> WatchBlocks(const v1::WatchBlocksRequest& request, absl::Duration timeout);
  absl::StatusOr<v1::DescribeBlockResponse> DescribeBlock(const v1::DescribeBlockRequest& request);
  absl::StatusOr<v1::ListRequestsResponse> ListRequests(const v1::ListRequestsRequest& request);
  absl::StatusOr<v1::DescribeRequestResponse> DescribeRequest(const std::string& request_id);
  absl::StatusOr<v1::AuditResponse> Audit(const v1::AuditRequest& request);
  absl::StatusOr<v1::DrainResponse> Drain(const std::string& worker, bool migrates = false);
  absl::Status Undrain(const std::string& worker);
  absl::StatusOr<v1::FlushPrefixCacheResponse> FlushPrefixCache(const v1::FlushPrefixCacheRequest& request);

  // Returns true when the service ("", "liveness", "readiness" or a full service name) is SERVING at one of the
  // managers.
  absl::StatusOr<bool> IsServing(const std::string& service);

 private:
  using Link = ManagerLinks::Link;
  template <typename Stub, typename Request, typename Response>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);

  // A call of InferenceService, which managers that stand by refuse.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Infer(Method<v1::InferenceService::Stub, Request, Response> method, const Request& request,
                                 absl::Duration timeout = absl::InfiniteDuration());
  // A call of AdminService. Managers that stand by answer it too, so this one asks who leads before, if there are
  // several.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Administer(Method<v1::AdminService::Stub, Request, Response> method, const Request& request);
  // Makes the leader the current manager, if there are several and one of them leads.
  void FindLeader(absl::Time deadline);

  const ClientOptions options_;
  ManagerLinks links_;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LIBRARY_CLIENT_H_
