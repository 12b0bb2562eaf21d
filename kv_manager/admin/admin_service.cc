#include "kv_manager/admin/admin_service.h"

namespace quire {

AdminServiceImpl::AdminServiceImpl(ManagerEngine* engine, RequestEnvironment* requests)
    : status_(engine, requests),
      pins_(engine, requests),
      blocks_(&asker_, &requests->registry),
      requests_(&asker_, requests),
      audit_(&asker_, &requests->registry),
      workers_(&asker_),
      asker_(engine) {}

grpc::ServerUnaryReactor* AdminServiceImpl::GetStatus(grpc::CallbackServerContext* context,
                                                      const v1::GetStatusRequest* /*request*/,
                                                      v1::GetStatusResponse* response) {
  status_.GetStatus(response);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* AdminServiceImpl::WatchBlocks(grpc::CallbackServerContext* context,
                                                                          const grpc::ByteBuffer* request) {
  return blocks_.WatchBlocks(context, *request);
}

grpc::ServerUnaryReactor* AdminServiceImpl::ExplainWait(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return StartCall(context, *request, response, &status_, &StatusCalls::ExplainWait);
}

grpc::ServerUnaryReactor* AdminServiceImpl::PinPrefix(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return StartCall(context, *request, response, &pins_, &PinCalls::PinPrefix);
}

grpc::ServerUnaryReactor* AdminServiceImpl::UnpinPrefix(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return StartCall(context, *request, response, &pins_, &PinCalls::UnpinPrefix);
}

grpc::ServerUnaryReactor* AdminServiceImpl::DescribeBlock(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return StartCall(context, *request, response, &blocks_, &BlockCalls::DescribeBlock);
}

grpc::ServerUnaryReactor* AdminServiceImpl::ListRequests(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return StartCall(context, *request, response, &requests_, &RequestCalls::ListRequests);
}

grpc::ServerUnaryReactor* AdminServiceImpl::DescribeRequest(grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* request,
                                                            grpc::ByteBuffer* response) {
  return StartCall(context, *request, response, &requests_, &RequestCalls::DescribeRequest);
}

grpc::ServerUnaryReactor* AdminServiceImpl::Audit(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return StartCall(context, *request, response, &audit_, &AuditCall::Audit);
}

grpc::ServerUnaryReactor* AdminServiceImpl::Drain(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return StartCall(context, *request, response, &workers_, &WorkerCalls::Drain);
}

grpc::ServerUnaryReactor* AdminServiceImpl::Undrain(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return StartCall(context, *request, response, &workers_, &WorkerCalls::Undrain);
}

grpc::ServerUnaryReactor* AdminServiceImpl::FlushPrefixCache(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request,
                                                             grpc::ByteBuffer* response) {
  return StartCall(context, *request, response, &workers_, &WorkerCalls::FlushPrefixCache);
}

}  // namespace quire
