// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/wait_report.h"

#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/worker_link/worker_link.h"

namespace quire {
namespace {

std::string MissingRows(const WaitReason& wait) {
  return absl::StrCat("waits for ", Counted(wait.num_rows - wait.num_free_rows, "more row"),
                      " of the worker: ", wait.num_rows, " needed, ", wait.num_free_rows, " free");
}

std::string MissingBlocks(const WaitReport& report) {
  const WaitReason& wait = report.reason;
  if (wait.kind == WaitReason::Kind::kTenantShare) {
    return absl::StrCat("waits until other requests of its tenant have ended: it needs ",
                        Counted(wait.num_counted_blocks, "KV block"), ", they hold ", wait.num_tenant_blocks,
                        ", and the tenant may hold ", wait.max_tenant_blocks, " (max_blocks_share)");
  }
  const int num_missing = wait.num_blocks - (wait.num_free_blocks - wait.num_watermark_blocks);
  std::string text = absl::StrCat("waits for ", num_missing, " more KV ", num_missing == 1 ? "block" : "blocks", ": ",
                                  wait.num_blocks, " needed");
  if (wait.num_watermark_blocks > 0) {
    absl::StrAppend(&text, ", and ", wait.num_watermark_blocks, wait.num_watermark_blocks == 1 ? " stays" : " stay",
                    " free for running requests to grow; ", wait.num_free_blocks,
                    wait.num_free_blocks == 1 ? " is free" : " are free");
  } else {
    absl::StrAppend(&text, ", ", wait.num_free_blocks, " free");
  }
  if (report.num_pinned_blocks > 0) absl::StrAppend(&text, "; pins hold ", report.num_pinned_blocks);
  return text;
}

v1::WaitReason EncodeReason(const WaitReport& report) {
  if (report.worker.empty()) return v1::WAIT_REASON_NOT_PLACED;
  if (report.is_worker_lost) return v1::WAIT_REASON_WORKER_LOST;
  switch (report.reason.kind) {
    case WaitReason::Kind::kRuns:
      return v1::WAIT_REASON_RUNS;
    case WaitReason::Kind::kBehindOthers:
      return v1::WAIT_REASON_BEHIND_OTHERS;
    case WaitReason::Kind::kResults:
      return v1::WAIT_REASON_RESULTS;
    case WaitReason::Kind::kRows:
      return v1::WAIT_REASON_ROWS;
    case WaitReason::Kind::kBlocks:
    case WaitReason::Kind::kTenantShare:
      return v1::WAIT_REASON_BLOCKS;
    case WaitReason::Kind::kPrefix:
      return v1::WAIT_REASON_PREFIX;
    case WaitReason::Kind::kBatchIsClosed:
      return v1::WAIT_REASON_BATCH_IS_CLOSED;
    case WaitReason::Kind::kNextPlan:
      return v1::WAIT_REASON_NEXT_PLAN;
  }
  return v1::WAIT_REASON_UNSPECIFIED;
}

// Explains the reason. The caller adds how many requests are ahead.
std::string Explain(v1::WaitReason reason, const WaitReport& report) {
  switch (reason) {
    case v1::WAIT_REASON_RUNS:
      return "runs";
    case v1::WAIT_REASON_NEXT_PLAN:
      return "enters with the next plan";
    case v1::WAIT_REASON_BEHIND_OTHERS:
      return "waits for its turn";
    case v1::WAIT_REASON_RESULTS:
      return "was preempted and waits for results that are on their way";
    case v1::WAIT_REASON_ROWS:
      return MissingRows(report.reason);
    case v1::WAIT_REASON_BLOCKS:
      return MissingBlocks(report);
    case v1::WAIT_REASON_PREFIX:
      return "waits for a running request to compute the beginning of its prompt, which they share";
    case v1::WAIT_REASON_BATCH_IS_CLOSED:
      return "waits for the running batch: it has to end first (--batching=static), or too few requests wait "
             "(--waiting-served-ratio)";
    case v1::WAIT_REASON_WORKER_LOST:
      return absl::StrCat("waits for its worker to come back: ", report.last_error);
    default:
      return "is with no worker: it is about to be placed, or has just ended";
  }
}

}  // namespace

std::optional<WaitReport> FindWait(RequestId request, const LoopView& loop) {
  if (loop.scheduler == nullptr) return std::nullopt;
  const std::optional<WaitReason> reason = loop.scheduler->ExplainWait(request);
  if (!reason.has_value()) return std::nullopt;
  return WaitReport{.worker = loop.address,
                    .is_worker_lost = !loop.link.is_ready(),
                    .last_error = std::string(loop.link.last_error().message()),
                    .reason = *reason,
                    .num_pinned_blocks = loop.blocks->counts().pinned};
}

void EncodeWait(const WaitReport& report, v1::ExplainWaitResponse* out) {
  const WaitReason& wait = report.reason;
  out->set_reason(EncodeReason(report));
  std::string text = Explain(out->reason(), report);
  if (wait.num_ahead > 0) {
    absl::StrAppend(&text, "; ", Counted(wait.num_ahead, "request"), wait.num_ahead == 1 ? " is" : " are", " ahead");
  }
  if (wait.num_cached_tokens > 0) {
    absl::StrAppend(&text, "; ", Counted(wait.num_cached_tokens, "token"), " of its prompt are cached");
  }
  if (wait.is_swapped) absl::StrAppend(&text, "; its blocks are in the host tier");
  out->set_explanation(text);
  out->set_worker(report.worker);
  out->set_requests_ahead(wait.num_ahead);
  out->set_rows_needed(wait.num_rows);
  out->set_rows_free(wait.num_free_rows);
  out->set_blocks_needed(wait.num_blocks);
  out->set_blocks_free(wait.num_free_blocks);
  out->set_blocks_kept(wait.num_watermark_blocks);
  out->set_blocks_pinned(report.num_pinned_blocks);
  out->set_cached_prompt_tokens(wait.num_cached_tokens);
  out->set_is_swapped(wait.is_swapped);
}

}  // namespace quire
