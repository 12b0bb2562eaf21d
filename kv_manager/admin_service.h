#ifndef QUIRE_KV_MANAGER_ADMIN_SERVICE_H_
#define QUIRE_KV_MANAGER_ADMIN_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "kv_manager/inference_service.h"
#include "kv_manager/manager_engine.h"
#include "quire/v1/admin.grpc.pb.h"

namespace quire {

inline constexpr uint32_t kDefaultPinSeconds = 600;
inline constexpr uint32_t kMaxPinSeconds = 24 * 60 * 60;

void EncodeStatus(const ManagerStatus& status, v1::GetStatusResponse* out);

// Requests with text and responses to them are bytes, see message_bytes.h.
using RawAdminService = v1::AdminService::WithCallbackMethod_GetStatus<
    v1::AdminService::WithRawCallbackMethod_ExplainWait<v1::AdminService::WithRawCallbackMethod_PinPrefix<
        v1::AdminService::WithRawCallbackMethod_UnpinPrefix<v1::AdminService::Service>>>>;

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

  ManagerEngine* const engine_;
  InferenceServiceImpl* const inference_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_SERVICE_H_
