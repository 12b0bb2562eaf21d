// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/admin_service.h"

#include "quire/v1/admin.grpc.pb.h"

namespace quire {

AdminServiceImpl::AdminServiceImpl(ManagerEngine* engine, RequestEnvironment* requests)
    : ReceivingService(v1::AdminService::service_full_name(), &requests->receiving, &requests->answers),
      status_(engine, requests),
      pins_(engine, requests),
      blocks_(&asker_, requests),
      requests_(&asker_, requests),
      audit_(&asker_, &requests->registry),
      workers_(&asker_),
      asker_(engine) {
  AddUnary("GetStatus", HandlerOf(&status_, &StatusCalls::GetStatus));
  AddUnary("ExplainWait", HandlerOf(&status_, &StatusCalls::ExplainWait));
  AddUnary("PinPrefix", HandlerOf(&pins_, &PinCalls::PinPrefix));
  AddUnary("UnpinPrefix", HandlerOf(&pins_, &PinCalls::UnpinPrefix));
  AddStream("WatchBlocks", [this](grpc::CallbackServerContext* context) { return blocks_.WatchBlocks(context); });
  AddUnary("DescribeBlock", HandlerOf(&blocks_, &BlockCalls::DescribeBlock));
  AddUnary("ListRequests", HandlerOf(&requests_, &RequestCalls::ListRequests));
  AddUnary("DescribeRequest", HandlerOf(&requests_, &RequestCalls::DescribeRequest));
  AddUnary("Audit", HandlerOf(&audit_, &AuditCall::Audit));
  AddUnary("Drain", HandlerOf(&workers_, &WorkerCalls::Drain));
  AddUnary("Undrain", HandlerOf(&workers_, &WorkerCalls::Undrain));
  AddUnary("FlushPrefixCache", HandlerOf(&workers_, &WorkerCalls::FlushPrefixCache));
}

}  // namespace quire
