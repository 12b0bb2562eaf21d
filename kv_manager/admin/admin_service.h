#ifndef QUIRE_KV_MANAGER_ADMIN_ADMIN_SERVICE_H_
#define QUIRE_KV_MANAGER_ADMIN_ADMIN_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "kv_manager/admin/audit_call.h"
#include "kv_manager/admin/block_calls.h"
#include "kv_manager/admin/loop_asker.h"
#include "kv_manager/admin/pin_calls.h"
#include "kv_manager/admin/request_calls.h"
#include "kv_manager/admin/status_calls.h"
#include "kv_manager/admin/worker_calls.h"
#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/requests/request_environment.h"
#include "quire/v1/admin.grpc.pb.h"

namespace quire {

// gRPC hands over requests with text, and their responses, as bytes, see message_bytes.h.
using RawInspection = v1::AdminService::WithRawCallbackMethod_WatchBlocks<
    v1::AdminService::WithRawCallbackMethod_DescribeBlock<v1::AdminService::WithRawCallbackMethod_ListRequests<
        v1::AdminService::WithRawCallbackMethod_DescribeRequest<v1::AdminService::WithRawCallbackMethod_Audit<
            v1::AdminService::WithRawCallbackMethod_Drain<v1::AdminService::WithRawCallbackMethod_Undrain<
                v1::AdminService::WithRawCallbackMethod_FlushPrefixCache<v1::AdminService::Service>>>>>>>>;
using RawAdminService = v1::AdminService::WithCallbackMethod_GetStatus<
    v1::AdminService::WithRawCallbackMethod_ExplainWait<v1::AdminService::WithRawCallbackMethod_PinPrefix<
        v1::AdminService::WithRawCallbackMethod_UnpinPrefix<RawInspection>>>>;

// AdminService: hands each call to the class of its family. GetStatus answers from what the step loops have published;
// the others ask each loop, which answers in its next round. Handlers never wait. Thread-safe. The server must be shut
// down before the service is destroyed.
class AdminServiceImpl : public RawAdminService {
 public:
  // Both are borrowed.
  AdminServiceImpl(ManagerEngine* engine, RequestEnvironment* requests);

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
  StatusCalls status_;
  PinCalls pins_;
  BlockCalls blocks_;
  RequestCalls requests_;
  AuditCall audit_;
  WorkerCalls workers_;
  LoopAsker asker_;  // Ends first, because its jobs use the others; they hold its address.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_ADMIN_SERVICE_H_
