#include "kv_manager/admin_service.h"

#include <memory>

#include "base/version.h"

namespace quire {
namespace {

void EncodeBlocks(const BlockCounts& in, v1::BlockCounts* out) {
  out->set_total(in.total);
  out->set_free(in.free);
  out->set_used(in.used);
  out->set_shared(in.shared);
}

void EncodeWorker(const WorkerStatus& in, v1::WorkerStatus* out) {
  out->set_address(in.address);
  out->set_state(in.is_ready ? v1::WORKER_STATE_READY : v1::WORKER_STATE_CONNECTING);
  out->set_last_error(in.last_error);
  out->set_epoch(in.epoch);
  out->set_steps(in.steps);
  EncodeBlocks(in.blocks, out->mutable_blocks());
  out->set_block_size(in.block_size);
  out->set_waiting_requests(in.waiting_requests);
  out->set_running_requests(in.running_requests);
  out->set_preemptions(in.stats.preemptions);
  out->set_device(in.device);
  out->set_numerics_fingerprint(in.numerics_fingerprint);
}

}  // namespace

void EncodeStatus(const ManagerStatus& status, v1::GetStatusResponse* out) {
  out->set_version(kVersion);
  out->set_uptime_seconds(status.uptime_us / 1'000'000);
  out->set_model_name(status.model_name);
  for (const std::shared_ptr<const WorkerStatus>& worker : status.workers) {
    EncodeWorker(*worker, out->add_workers());
  }
  out->set_prompt_tokens(status.totals.prompt_tokens);
  out->set_completion_tokens(status.totals.generated_tokens);
}

grpc::ServerUnaryReactor* AdminServiceImpl::GetStatus(grpc::CallbackServerContext* context,
                                                      const v1::GetStatusRequest* /*request*/,
                                                      v1::GetStatusResponse* response) {
  EncodeStatus(engine_->status(), response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace quire
