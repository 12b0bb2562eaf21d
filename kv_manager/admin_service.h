#ifndef QUIRE_KV_MANAGER_ADMIN_SERVICE_H_
#define QUIRE_KV_MANAGER_ADMIN_SERVICE_H_

#include "grpcpp/server_context.h"
#include "kv_manager/manager_engine.h"
#include "quire/v1/admin.grpc.pb.h"

namespace quire {

void EncodeStatus(const ManagerStatus& status, v1::GetStatusResponse* out);

// AdminService over the engine. Answers from what the step loops have published and never waits for them.
class AdminServiceImpl : public v1::AdminService::CallbackService {
 public:
  // `engine` is borrowed.
  explicit AdminServiceImpl(const ManagerEngine* engine) : engine_(engine) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

 private:
  const ManagerEngine* const engine_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_SERVICE_H_
