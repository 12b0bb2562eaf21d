// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/status_calls.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "base/version.h"
#include "kv_manager/admin/wait_report.h"
#include "security/authorizer.h"

namespace quire {
namespace {

// Calls of ExplainWait at the same time. Tenants may make them, so operators' questions to the loops must find room
// beside theirs.
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

v1::WorkerState StateOf(bool is_ready, bool is_refused) {
  if (is_ready) return v1::WORKER_STATE_READY;
  return is_refused ? v1::WORKER_STATE_REFUSED : v1::WORKER_STATE_CONNECTING;
}

void EncodeRanks(const std::vector<RankState>& ranks, v1::WorkerStatus* out) {
  for (const RankState& rank : ranks) {
    const int number = out->ranks_size();
    v1::RankStatus* const added = out->add_ranks();
    added->set_rank(number);
    added->set_address(rank.address);
    added->set_state(StateOf(rank.is_ready, rank.is_refused));
    added->set_last_error(rank.last_error);
    added->set_device(rank.device);
  }
}

void EncodeWorker(const WorkerStatus& in, v1::WorkerStatus* out) {
  out->set_address(in.address);
  out->set_state(StateOf(in.is_ready, in.is_refused));
  out->set_last_error(in.last_error);
  out->set_epoch(in.epoch);
  out->set_steps(in.steps);
  if (in.is_ready) EncodeBlocks(in.blocks, out->mutable_blocks());
  out->set_block_size(in.block_size);
  out->set_waiting_requests(in.waiting_requests);
  out->set_running_requests(in.running_requests);
  out->set_swapped_requests(in.swapped_requests);
  out->set_preemptions(in.stats.preemptions);
  out->set_device(in.device);
  out->set_numerics_fingerprint(in.numerics_fingerprint);
  out->set_is_draining(in.is_draining);
  out->set_model_name(in.model_name);
  out->set_generation(Value(in.generation));
  if (in.ranks != nullptr) EncodeRanks(*in.ranks, out);
}

void EncodeHistogram(const Histogram& in, v1::LatencyHistogram* out) {
  out->mutable_upper_bounds_seconds()->Add(in.bounds().begin(), in.bounds().end());
  for (const int64_t count : in.counts()) out->add_counts(count);
  out->set_sum_seconds(in.sum());
}

}  // namespace

void EncodeStatus(const ManagerStatus& status, v1::GetStatusResponse* out) {
  out->set_version(kVersion);
  out->set_uptime_seconds(status.uptime_us / 1'000'000);
  out->set_model_name(status.model_name);
  out->set_generation(Value(status.generation));
  for (const std::shared_ptr<const WorkerStatus>& worker : status.workers) {
    v1::WorkerStatus* const added = out->add_workers();
    EncodeWorker(*worker, added);
    const auto difference = status.differences.find(Value(worker->generation));
    if (difference == status.differences.end() || !worker->last_error.empty()) continue;
    added->set_last_error(absl::StrCat("it differs from the workers of generation ", Value(status.generation), " in ",
                                       difference->second));
  }
  out->set_prompt_tokens(status.totals.prompt_tokens);
  out->set_cached_prompt_tokens(status.totals.cached_tokens);
  out->set_completion_tokens(status.totals.generated_tokens);
  out->set_is_draining(status.is_draining);
  for (const std::string& warning : status.warnings) out->add_warnings(warning);
  EncodeHistogram(status.totals.first_token_seconds, out->mutable_time_to_first_token());
  EncodeHistogram(status.totals.inter_token_seconds, out->mutable_inter_token_latency());
}

void StatusCalls::GetStatus(const v1::GetStatusRequest& /*request*/, const AdminCall& call) {
  v1::GetStatusResponse response;
  EncodeStatus(engine_->status(), &response);
  if (std::string standby = requests_->standby(); !standby.empty()) response.add_warnings(std::move(standby));
  call.Finish(response);
}

void StatusCalls::ExplainWait(const v1::ExplainWaitRequest& request, const AdminCall& call) {
  const absl::StatusOr<std::optional<Caller>> caller = CallerOf(*call.context(), requests_->options.tokens.get());
  if (!caller.ok()) return call.Finish(caller.status());
  const absl::StatusOr<std::shared_ptr<TokenStream>> stream = requests_->registry.Find(*caller, request.request_id());
  if (!stream.ok()) return call.Finish(stream.status());
  if (num_explained_.fetch_add(1) >= kMaxExplained) {
    --num_explained_;
    return call.Finish(WithRetryDelay(
        WithReason(absl::ResourceExhaustedError(absl::StrCat(
                       kMaxExplained, " calls of ExplainWait are running, and the limit is ", kMaxExplained)),
                   "TOO_MANY_EXPLAINED"),
        /*delay_ms=*/100));
  }
  const auto report = std::make_shared<WaitReport>();
  engine_->AskAll(
      [id = (*stream)->id(), report](const LoopView& loop) {
        // At most one loop has the request, so only one writes.
        if (std::optional<WaitReport> found = FindWait(id, loop); found.has_value()) *report = *std::move(found);
      },
      [this, report, call](const absl::Status& status) {
        --num_explained_;
        if (!status.ok() && report->worker.empty()) return call.Finish(status);
        v1::ExplainWaitResponse response;
        EncodeWait(*report, &response);
        call.Finish(response);
      });
}

}  // namespace quire
