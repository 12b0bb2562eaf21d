#ifndef QUIRE_KV_MANAGER_ADMIN_ADMIN_SERVICE_H_
#define QUIRE_KV_MANAGER_ADMIN_ADMIN_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/thread_pool.h"
#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/engine/step_loop.h"
#include "kv_manager/inference/inference_service.h"
#include "quire/v1/admin.grpc.pb.h"

namespace quire {

inline constexpr uint32_t kDefaultPinSeconds = 600;
inline constexpr uint32_t kMaxPinSeconds = 24 * 60 * 60;
inline constexpr uint32_t kDefaultListedRequests = 100;
inline constexpr uint32_t kMaxListedRequests = 1000;
inline constexpr uint32_t kDefaultWatchIntervalMs = 500;
inline constexpr uint32_t kMinWatchIntervalMs = 100;
inline constexpr uint32_t kMaxWatchIntervalMs = 60'000;
inline constexpr int kMaxWatches = 16;

void EncodeStatus(const ManagerStatus& status, v1::GetStatusResponse* out);

// Requests with text and responses to them are bytes, see message_bytes.h.
using RawAdminLook = v1::AdminService::WithRawCallbackMethod_WatchBlocks<
    v1::AdminService::WithRawCallbackMethod_DescribeBlock<v1::AdminService::WithRawCallbackMethod_ListRequests<
        v1::AdminService::WithRawCallbackMethod_DescribeRequest<v1::AdminService::WithRawCallbackMethod_Audit<
            v1::AdminService::WithRawCallbackMethod_Drain<v1::AdminService::WithRawCallbackMethod_Undrain<
                v1::AdminService::WithRawCallbackMethod_FlushPrefixCache<v1::AdminService::Service>>>>>>>>;
using RawAdminService = v1::AdminService::WithCallbackMethod_GetStatus<
    v1::AdminService::WithRawCallbackMethod_ExplainWait<v1::AdminService::WithRawCallbackMethod_PinPrefix<
        v1::AdminService::WithRawCallbackMethod_UnpinPrefix<RawAdminLook>>>>;

// AdminService over the engine. GetStatus answers from what the step loops have published; the others ask each loop,
// which answers in its next round. Handlers never wait. Thread-safe.
class AdminServiceImpl : public RawAdminService {
 public:
  // Both are borrowed. `inference` knows the names of requests, and tokenizes.
  AdminServiceImpl(ManagerEngine* engine, InferenceServiceImpl* inference) : engine_(engine), inference_(inference) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* ExplainWait(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* PinPrefix(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* UnpinPrefix(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchBlocks(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* DescribeBlock(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListRequests(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* DescribeRequest(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Audit(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Undrain(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* FlushPrefixCache(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) override;

 private:
  // A call that an answer is owed to.
  struct Call {
    grpc::CallbackServerContext* context;
    grpc::ServerUnaryReactor* reactor;
    grpc::ByteBuffer* response;

    // Ends the call. Once.
    void Finish(const absl::Status& status) const;
    void Finish(const google::protobuf::Message& message) const;
  };

  void StartExplain(const grpc::ByteBuffer& request, const Call& call);
  void StartPin(const v1::PinPrefixRequest& request, const Call& call);
  void StartUnpin(const v1::UnpinPrefixRequest& request, const Call& call);

  // Reads the request and gives it to `start`, where its text says.
  template <typename Request>
  void StartOnText(const grpc::ByteBuffer& bytes, const Call& call,
                   void (AdminServiceImpl::*start)(const Request&, const Call&));

  // Reads the request and gives it to `start`, or ends the call.
  template <typename Request>
  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context, const grpc::ByteBuffer& bytes,
                                  grpc::ByteBuffer* response,
                                  void (AdminServiceImpl::*start)(const Request&, const Call&));
  void StartDescribeBlock(const v1::DescribeBlockRequest& request, const Call& call);
  void StartList(const v1::ListRequestsRequest& request, const Call& call);
  void StartDescribeRequest(const v1::DescribeRequestRequest& request, const Call& call);
  void StartAudit(const v1::AuditRequest& request, const Call& call);
  struct AuditRun;
  void FinishAudit(const std::shared_ptr<AuditRun>& run, const Call& call);
  void StartDrain(const v1::DrainRequest& request, const Call& call);
  void StartUndrain(const v1::UndrainRequest& request, const Call& call);
  void StartFlush(const v1::FlushPrefixCacheRequest& request, const Call& call);

  // Asks the loop of the worker, or all of them when it is empty. `done` runs on the service's own thread.
  void Ask(const std::string& worker, StepLoop::Question question, std::function<void(const absl::Status&)> done);
  struct Flush;
  void GoOnFlushing(const std::shared_ptr<Flush>& flush);

  ManagerEngine* const engine_;
  InferenceServiceImpl* const inference_;
  std::atomic<int> num_watches_ = 0;
  std::atomic<int> num_explained_ = 0;  // Calls of ExplainWait that run.
  ThreadPool threads_{1};               // Makes messages of what step loops have copied.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_ADMIN_SERVICE_H_
