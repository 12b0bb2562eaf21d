#include "kv_manager/admin/admin_service.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/version.h"
#include "kv_manager/admin/loop_look.h"
#include "kv_manager/admin/wait_report.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/tenancy.h"
#include "kv_manager/rpc/message_bytes.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {
namespace {

constexpr int kMaxExplained = 8;

void EncodeBlocks(const BlockCounts& in, v1::BlockCounts* out) {
  out->set_total(in.total);
  out->set_free(in.free);
  out->set_used(in.used);
  out->set_shared(in.shared);
  out->set_evictable(in.evictable);
  out->set_host_total(in.host_total);
  out->set_host_used(in.host_used);
  out->set_pinned(in.pinned);
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
  out->set_swapped_requests(in.swapped_requests);
  out->set_preemptions(in.stats.preemptions);
  out->set_device(in.device);
  out->set_numerics_fingerprint(in.numerics_fingerprint);
  out->set_is_draining(in.is_draining);
}

void EncodeHistogram(const Histogram& in, v1::LatencyHistogram* out) {
  out->mutable_upper_bounds_seconds()->Add(in.bounds().begin(), in.bounds().end());
  for (const int64_t count : in.counts()) out->add_counts(count);
  out->set_sum_seconds(in.sum());
}

// What a pin is of.
struct PinnedPrompt {
  std::vector<TokenId> tokens;
  std::string cache_salt;
};

// A prompt is checked as that of a request.
template <typename PinRequest>
v1::GenerateRequest AsGenerate(const PinRequest& in) {
  v1::GenerateRequest out;
  if (in.has_text()) out.set_text(in.text());
  if (in.has_token_ids()) *out.mutable_token_ids() = in.token_ids();
  if (in.has_add_special_tokens()) out.set_add_special_tokens(in.add_special_tokens());
  out.set_cache_salt(in.cache_salt());
  return out;
}

template <typename PinRequest>
absl::StatusOr<PinnedPrompt> ReadPrompt(const PinRequest& in, const std::optional<Caller>& caller, const Engine& engine,
                                        const RequestLimits& limits) {
  FieldErrors errors;
  CheckUnknownFields(in, "", &errors);
  if (!errors.empty()) return errors.ToStatus();
  const std::shared_ptr<const ServedModel> model = engine.model();
  if (model == nullptr) return absl::UnavailableError("no worker has joined yet");
  QUIRE_ASSIGN_OR_RETURN(ValidRequest valid, ValidateGenerate(AsGenerate(in), *model, limits, /*drawn_seed=*/0));
  QUIRE_RETURN_IF_ERROR(AssumeTenant(caller, &valid.request));
  return PinnedPrompt{std::move(valid.request.prompt), std::move(valid.request.cache_salt)};
}

absl::StatusOr<uint32_t> ReadTtl(const v1::PinPrefixRequest& in) {
  const uint32_t seconds = in.has_ttl_seconds() ? in.ttl_seconds() : kDefaultPinSeconds;
  if (seconds >= 1 && seconds <= kMaxPinSeconds) return seconds;
  FieldErrors errors;
  errors.Add("ttl_seconds", absl::StrCat("is ", seconds, ", must be 1 .. ", kMaxPinSeconds));
  return errors.ToStatus();
}

// What the workers have said.
absl::StatusOr<v1::PinPrefixResponse> PinResult(size_t num_prompt_tokens, std::map<std::string, v1::WorkerPin> pins) {
  v1::PinPrefixResponse response;
  response.set_prompt_tokens(static_cast<uint32_t>(num_prompt_tokens));
  bool has_pin = false;
  std::string refusal;
  for (auto& [address, pin] : pins) {
    has_pin = has_pin || pin.pinned_tokens() > 0;
    if (!pin.refusal().empty()) refusal = absl::StrCat("worker ", address, ": ", pin.refusal());
    *response.add_workers() = std::move(pin);
  }
  if (has_pin || refusal.empty()) return response;
  return WithReason(absl::ResourceExhaustedError(refusal), "TOO_MANY_PINS");
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
  out->set_cached_prompt_tokens(status.totals.cached_tokens);
  out->set_completion_tokens(status.totals.generated_tokens);
  out->set_is_draining(status.is_draining);
  EncodeHistogram(status.totals.first_token_seconds, out->mutable_time_to_first_token());
  EncodeHistogram(status.totals.inter_token_seconds, out->mutable_inter_token_latency());
}

grpc::ServerUnaryReactor* AdminServiceImpl::GetStatus(grpc::CallbackServerContext* context,
                                                      const v1::GetStatusRequest* /*request*/,
                                                      v1::GetStatusResponse* response) {
  EncodeStatus(engine_->status(), response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* AdminServiceImpl::ExplainWait(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  const Call call{context, context->DefaultReactor(), response};
  StartExplain(*request, call);
  return call.reactor;
}

grpc::ServerUnaryReactor* AdminServiceImpl::PinPrefix(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  const Call call{context, context->DefaultReactor(), response};
  StartOnText(*request, call, &AdminServiceImpl::StartPin);
  return call.reactor;
}

grpc::ServerUnaryReactor* AdminServiceImpl::UnpinPrefix(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  const Call call{context, context->DefaultReactor(), response};
  StartOnText(*request, call, &AdminServiceImpl::StartUnpin);
  return call.reactor;
}

void AdminServiceImpl::Call::Finish(const absl::Status& status) const {
  reactor->Finish(ToGrpcStatus(status, context));
}

void AdminServiceImpl::Call::Finish(const google::protobuf::Message& message) const {
  *response = ToBytes(message);
  reactor->Finish(grpc::Status::OK);
}

void AdminServiceImpl::StartExplain(const grpc::ByteBuffer& bytes, const Call& call) {
  v1::ExplainWaitRequest request;
  if (const absl::Status status = FromBytes(bytes, &request); !status.ok()) return call.Finish(status);
  FieldErrors errors;
  CheckUnknownFields(request, "", &errors);
  if (!errors.empty()) return call.Finish(errors.ToStatus());
  const absl::StatusOr<RequestId> id =
      inference_->FindRequest(inference_->CallerOf(*call.context), request.request_id());
  if (!id.ok()) return call.Finish(id.status());
  // Tenants may call this: operators' questions always find room beside theirs.
  if (num_explained_.fetch_add(1) >= kMaxExplained) {
    --num_explained_;
    return call.Finish(WithRetryDelay(
        WithReason(absl::ResourceExhaustedError(absl::StrCat(kMaxExplained, " calls of ExplainWait run, the limit")),
                   "TOO_MANY_EXPLAINED"),
        /*delay_ms=*/100));
  }
  const auto report = std::make_shared<WaitReport>();
  engine_->AskAll(
      [id, report](const StepLoop::View& loop) {
        // One loop has it, at most.
        if (std::optional<WaitReport> found = FindWait(*id, loop); found.has_value()) *report = *std::move(found);
      },
      [this, report, call](const absl::Status& status) {
        --num_explained_;
        if (!status.ok() && report->worker.empty()) return call.Finish(status);
        v1::ExplainWaitResponse response;
        EncodeWait(*report, &response);
        call.Finish(response);
      });
}

template <typename Request>
void AdminServiceImpl::StartOnText(const grpc::ByteBuffer& bytes, const Call& call,
                                   void (AdminServiceImpl::*start)(const Request&, const Call&)) {
  const auto request = std::make_shared<Request>();
  absl::Status status = FromBytes(bytes, request.get());
  if (status.ok()) {
    status = inference_->RunOnText(TextWork(AsGenerate(*request)), [=, this] { (this->*start)(*request, call); });
  }
  if (!status.ok()) call.Finish(status);
}

void AdminServiceImpl::StartPin(const v1::PinPrefixRequest& request, const Call& call) {
  const absl::StatusOr<uint32_t> ttl_seconds = ReadTtl(request);
  if (!ttl_seconds.ok()) return call.Finish(ttl_seconds.status());
  absl::StatusOr<PinnedPrompt> read =
      ReadPrompt(request, inference_->CallerOf(*call.context), *engine_, inference_->limits());
  if (!read.ok()) return call.Finish(read.status());
  const auto prompt = std::make_shared<const PinnedPrompt>(*std::move(read));
  const auto pins = std::make_shared<Gathered<std::map<std::string, v1::WorkerPin>>>();
  engine_->AskAll(
      [prompt, pins, ttl_us = *ttl_seconds * int64_t{1'000'000}](const StepLoop::View& loop) {
        v1::WorkerPin pin;
        pin.set_address(loop.address);
        if (loop.blocks != nullptr) {
          const absl::StatusOr<int> num_tokens =
              loop.blocks->Pin(prompt->cache_salt, prompt->tokens, loop.now_us + ttl_us);
          if (num_tokens.ok()) pin.set_pinned_tokens(*num_tokens);
          if (!num_tokens.ok()) pin.set_refusal(std::string(num_tokens.status().message()));
        }
        const std::lock_guard lock(pins->mutex);
        pins->all[loop.address] = std::move(pin);
      },
      [prompt, pins, call](const absl::Status& status) {
        if (!status.ok()) return call.Finish(status);
        const absl::StatusOr<v1::PinPrefixResponse> response = PinResult(prompt->tokens.size(), std::move(pins->all));
        return response.ok() ? call.Finish(*response) : call.Finish(response.status());
      });
}

void AdminServiceImpl::StartUnpin(const v1::UnpinPrefixRequest& request, const Call& call) {
  absl::StatusOr<PinnedPrompt> read =
      ReadPrompt(request, inference_->CallerOf(*call.context), *engine_, inference_->limits());
  if (!read.ok()) return call.Finish(read.status());
  const auto prompt = std::make_shared<const PinnedPrompt>(*std::move(read));
  const auto num_workers = std::make_shared<std::atomic<int>>(0);
  engine_->AskAll(
      [prompt, num_workers](const StepLoop::View& loop) {
        if (loop.blocks != nullptr && loop.blocks->Unpin(prompt->cache_salt, prompt->tokens)) ++*num_workers;
      },
      [prompt, num_workers, call](const absl::Status& status) {
        if (!status.ok()) return call.Finish(status);
        v1::UnpinPrefixResponse response;
        response.set_num_workers(*num_workers);
        if (response.num_workers() > 0) return call.Finish(response);
        call.Finish(WithReason(
            absl::NotFoundError(absl::StrCat("no worker has a pin of these ", prompt->tokens.size(), " tokens")),
            "NOT_PINNED"));
      });
}

}  // namespace quire
