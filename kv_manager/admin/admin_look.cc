// The calls of AdminService that look inside workers, check them and drain them.

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kv_manager/admin/admin_service.h"
#include "kv_manager/admin/block_watch.h"
#include "kv_manager/admin/fork_tree.h"
#include "kv_manager/admin/loop_look.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/rpc/message_bytes.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {
namespace {

constexpr size_t kMaxSharers = 100;
// Blocks that a step loop frees between two plans.
constexpr int kFlushSlice = 128;
// How long an audit waits for a step of each worker.
constexpr uint32_t kDefaultAuditWaitMs = 2000;
constexpr uint32_t kMaxAuditWaitMs = 60'000;

// INVALID_ARGUMENT that names one field.
absl::Status FieldStatus(const char* field, std::string description) {
  FieldErrors errors;
  errors.Add(field, std::move(description));
  return errors.ToStatus();
}

absl::Status CheckRange(const char* field, uint32_t value, uint32_t least, uint32_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return FieldStatus(field, absl::StrCat("is ", value, ", must be ", least, " .. ", most));
}

absl::Status WithWorkerReason(const absl::Status& status) {
  return absl::IsNotFound(status) ? WithReason(status, "NO_SUCH_WORKER") : status;
}

template <typename Request>
absl::Status Read(const grpc::ByteBuffer& bytes, Request* request) {
  if (absl::Status status = FromBytes(bytes, request); !status.ok()) return status;
  FieldErrors errors;
  CheckUnknownFields(*request, "", &errors);
  return errors.empty() ? absl::OkStatus() : errors.ToStatus();
}

using Names = absl::flat_hash_map<RequestId, std::string>;

// A request whose client has just left has no name any more.
std::string NameOf(RequestId request, const Names& names) {
  const auto it = names.find(request);
  return it == names.end() ? absl::StrCat("#", Value(request)) : it->second;
}

v1::ListRequestsResponse EncodeList(ListedRequests listed, const Names& names) {
  v1::ListRequestsResponse response;
  for (auto& [request, summary] : listed.requests) {
    summary.set_request_id(NameOf(request, names));
    *response.add_requests() = std::move(summary);
  }
  response.set_num_requests(listed.num_requests);
  return response;
}

v1::DescribeRequestResponse EncodeDescription(const std::string& name, DescribedRequest described, const Names& names) {
  v1::DescribeRequestResponse& response = described.description;
  response.mutable_summary()->set_request_id(name);
  for (const ForkNode& node : BuildForkTree(described.tables)) {
    v1::ForkNode* const out = response.add_tree();
    out->set_parent(node.parent);
    out->mutable_sequences()->Add(node.sequences.begin(), node.sequences.end());
    out->set_first_block(node.first_block);
    out->set_num_blocks(node.num_blocks);
  }
  std::vector<std::pair<RequestId, int>>& sharers = described.sharers;
  std::sort(sharers.begin(), sharers.end(), [](const auto& a, const auto& b) {
    return std::pair(-a.second, Value(a.first)) < std::pair(-b.second, Value(b.first));
  });
  if (sharers.size() > kMaxSharers) sharers.resize(kMaxSharers);
  for (const auto& [request, num_blocks] : sharers) {
    v1::BlockSharer* const out = response.add_sharers();
    out->set_request_id(NameOf(request, names));
    out->set_num_blocks(num_blocks);
  }
  return std::move(response);
}

}  // namespace

template <typename Request>
grpc::ServerUnaryReactor* AdminServiceImpl::Start(grpc::CallbackServerContext* context, const grpc::ByteBuffer& bytes,
                                                  grpc::ByteBuffer* response,
                                                  void (AdminServiceImpl::*start)(const Request&, const Call&)) {
  const Call call{context, context->DefaultReactor(), response};
  Request request;
  const absl::Status status = Read(bytes, &request);
  status.ok() ? (this->*start)(request, call) : call.Finish(status);
  return call.reactor;
}

grpc::ServerUnaryReactor* AdminServiceImpl::DescribeBlock(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Start(context, *request, response, &AdminServiceImpl::StartDescribeBlock);
}

grpc::ServerUnaryReactor* AdminServiceImpl::ListRequests(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Start(context, *request, response, &AdminServiceImpl::StartList);
}

grpc::ServerUnaryReactor* AdminServiceImpl::DescribeRequest(grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* request,
                                                            grpc::ByteBuffer* response) {
  return Start(context, *request, response, &AdminServiceImpl::StartDescribeRequest);
}

grpc::ServerUnaryReactor* AdminServiceImpl::Audit(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return Start(context, *request, response, &AdminServiceImpl::StartAudit);
}

grpc::ServerUnaryReactor* AdminServiceImpl::Drain(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return Start(context, *request, response, &AdminServiceImpl::StartDrain);
}

grpc::ServerUnaryReactor* AdminServiceImpl::Undrain(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  return Start(context, *request, response, &AdminServiceImpl::StartUndrain);
}

grpc::ServerUnaryReactor* AdminServiceImpl::FlushPrefixCache(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request,
                                                             grpc::ByteBuffer* response) {
  return Start(context, *request, response, &AdminServiceImpl::StartFlush);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* AdminServiceImpl::WatchBlocks(grpc::CallbackServerContext* context,
                                                                          const grpc::ByteBuffer* request_bytes) {
  v1::WatchBlocksRequest request;
  absl::Status status = Read(*request_bytes, &request);
  const uint32_t interval_ms = request.has_interval_ms() ? request.interval_ms() : kDefaultWatchIntervalMs;
  if (status.ok()) status = CheckRange("interval_ms", interval_ms, kMinWatchIntervalMs, kMaxWatchIntervalMs);
  if (num_watches_.fetch_add(1) >= kMaxWatches && status.ok()) {
    status = WithReason(absl::ResourceExhaustedError(absl::StrCat(kMaxWatches, " calls of WatchBlocks run, the limit")),
                        "TOO_MANY_WATCHES");
  }
  auto* const watch = new BlockWatch({engine_, &threads_, &num_watches_}, context, request.worker(), interval_ms);
  status.ok() ? watch->Start() : watch->Refuse(status);
  return watch;
}

void AdminServiceImpl::Ask(const std::string& worker, StepLoop::Question question,
                           std::function<void(const absl::Status&)> done) {
  auto later = [this, done = std::move(done)](const absl::Status& status) {
    threads_.Schedule([done, status = WithWorkerReason(status)] { done(status); });
  };
  worker.empty() ? engine_->AskAll(std::move(question), std::move(later))
                 : engine_->AskWorker(worker, std::move(question), std::move(later));
}

void AdminServiceImpl::StartDescribeBlock(const v1::DescribeBlockRequest& request, const Call& call) {
  std::string worker = request.worker();
  if (worker.empty()) {
    const ManagerStatus manager = engine_->status();
    if (manager.workers.size() != 1) {
      return call.Finish(FieldStatus(
          "worker", absl::StrCat("is empty, and the manager has ", manager.workers.size(), " workers: ",
                                 absl::StrJoin(manager.workers, ", ", [](std::string* out, const auto& status) {
                                   absl::StrAppend(out, status->address);
                                 }))));
    }
    worker = manager.workers.front()->address;
  }
  struct Answer {
    absl::Status status;
    DescribedBlock block;
  };
  const auto answer = std::make_shared<Answer>();
  Ask(
      worker,
      [answer, block = request.block()](const StepLoop::View& loop) {
        if (loop.blocks == nullptr) {
          answer->status =
              WithReason(absl::FailedPreconditionError(absl::StrCat("worker: ", loop.address, " has not joined yet")),
                         "WORKER_NOT_JOINED");
        } else if (block >= static_cast<uint32_t>(loop.blocks->num_blocks())) {
          answer->status = FieldStatus("block", absl::StrCat("is ", block, ", the pool of worker ", loop.address,
                                                             " has the blocks 0 .. ", loop.blocks->num_blocks() - 1));
        } else {
          quire::DescribeBlock(loop, BlockId{block}, &answer->block);
        }
      },
      [this, answer, call](const absl::Status& status) {
        if (!status.ok()) return call.Finish(status);
        if (!answer->status.ok()) return call.Finish(answer->status);
        const Names names = inference_->RequestNames();
        v1::DescribeBlockResponse& response = answer->block.description;
        for (int i = 0; i < response.owners_size(); ++i) {
          response.mutable_owners(i)->set_request_id(NameOf(answer->block.owners[i], names));
        }
        call.Finish(response);
      });
}

void AdminServiceImpl::StartList(const v1::ListRequestsRequest& request, const Call& call) {
  const uint32_t max_requests = request.has_max_requests() ? request.max_requests() : kDefaultListedRequests;
  if (const absl::Status status = CheckRange("max_requests", max_requests, 1, kMaxListedRequests); !status.ok()) {
    return call.Finish(status);
  }
  const auto listed = std::make_shared<Gathered<ListedRequests>>();
  Ask(
      request.worker(),
      [listed, max_requests](const StepLoop::View& loop) {
        ListedRequests own;
        quire::ListRequests(loop, static_cast<int>(max_requests), &own);
        const std::lock_guard lock(listed->mutex);
        listed->all.num_requests += own.num_requests;
        std::move(own.requests.begin(), own.requests.end(), std::back_inserter(listed->all.requests));
      },
      [this, listed, call](const absl::Status& status) {
        if (!status.ok()) return call.Finish(status);
        call.Finish(EncodeList(std::move(listed->all), inference_->RequestNames()));
      });
}

void AdminServiceImpl::StartDescribeRequest(const v1::DescribeRequestRequest& request, const Call& call) {
  const std::string& name = request.request_id();
  const absl::StatusOr<RequestId> id = inference_->FindRequest(inference_->CallerOf(*call.context), name);
  if (!id.ok()) return call.Finish(id.status());
  struct Answer {
    bool is_found = false;
    DescribedRequest request;
  };
  const auto answer = std::make_shared<Answer>();
  Ask(
      "",
      [id, answer](const StepLoop::View& loop) {  // One loop has it, at most.
        DescribedRequest own;
        if (!quire::DescribeRequest(loop, *id, &own)) return;
        answer->request = std::move(own);
        answer->is_found = true;
      },
      [this, name, answer, call](const absl::Status& status) {
        if (!answer->is_found && !status.ok()) return call.Finish(status);
        if (answer->is_found) {
          return call.Finish(EncodeDescription(name, std::move(answer->request), inference_->RequestNames()));
        }
        call.Finish(
            WithReason(absl::FailedPreconditionError(absl::StrCat("request_id: no worker has ", Quoted(name),
                                                                  ": it is about to be placed, or has just ended")),
                       "REQUEST_NOT_PLACED"));
      });
}

// Gathers what step loops find at once, and what their workers answer with a later step.
struct AdminServiceImpl::AuditRun {
  std::mutex mutex;
  // Guarded by mutex.
  int num_awaited = 1;  // The questions to the loops, and each answer of a worker.
  absl::Status status;
  std::map<std::string, v1::WorkerAudit> audits;  // By address.
  std::map<std::string, TableAudit> tables;

  // True for the last one.
  bool Arrive(absl::FunctionRef<void()> take) {
    const std::lock_guard lock(mutex);
    take();
    return --num_awaited == 0;
  }
};

void AdminServiceImpl::StartAudit(const v1::AuditRequest& request, const Call& call) {
  const uint32_t max_wait_ms = request.has_max_wait_ms() ? request.max_wait_ms() : kDefaultAuditWaitMs;
  if (const absl::Status status = CheckRange("max_wait_ms", max_wait_ms, 0, kMaxAuditWaitMs); !status.ok()) {
    return call.Finish(status);
  }
  const auto run = std::make_shared<AuditRun>();
  const auto answer_worker = [this, run, call](const std::string& address, const TableAudit& tables) {
    if (run->Arrive([&] { run->tables[address] = tables; })) threads_.Schedule([=, this] { FinishAudit(run, call); });
  };
  Ask(
      request.worker(),
      [=, repair = request.repair()](const StepLoop::View& loop) {
        v1::WorkerAudit audit = AuditBlocks(loop, repair);
        const bool has_tables = loop.link.is_ready() && max_wait_ms > 0;
        if (!has_tables)
          audit.set_rows_not_compared(max_wait_ms == 0 ? "not asked for" : "the worker is not connected");
        {
          const std::lock_guard lock(run->mutex);
          run->audits[loop.address] = std::move(audit);
          if (has_tables) ++run->num_awaited;
        }
        if (!has_tables) return;
        loop.tables->Ask(loop.now_us + int64_t{1000} * max_wait_ms, repair,
                         [=, address = loop.address](const TableAudit& tables) { answer_worker(address, tables); });
      },
      [this, run, call](const absl::Status& status) {
        if (run->Arrive([&] { run->status = status; })) FinishAudit(run, call);
      });
}

void AdminServiceImpl::FinishAudit(const std::shared_ptr<AuditRun>& run, const Call& call) {
  if (!run->status.ok()) return call.Finish(run->status);
  const Names names = inference_->RequestNames();
  v1::AuditResponse response;
  for (auto& [address, audit] : run->audits) {
    const auto tables = run->tables.find(address);
    if (tables != run->tables.end()) {
      AddTableAudit(
          tables->second, [&](RequestId request) { return NameOf(request, names); }, &audit);
    }
    *response.add_workers() = std::move(audit);
  }
  call.Finish(response);
}

void AdminServiceImpl::StartDrain(const v1::DrainRequest& request, const Call& call) {
  const absl::StatusOr<int> num_requests = engine_->SetWorkerDraining(request.worker(), true);
  if (!num_requests.ok()) return call.Finish(WithWorkerReason(num_requests.status()));
  v1::DrainResponse response;
  response.set_num_requests(*num_requests);
  call.Finish(response);
}

void AdminServiceImpl::StartUndrain(const v1::UndrainRequest& request, const Call& call) {
  const absl::StatusOr<int> num_requests = engine_->SetWorkerDraining(request.worker(), false);
  if (!num_requests.ok()) return call.Finish(WithWorkerReason(num_requests.status()));
  call.Finish(v1::UndrainResponse());
}

// A flush goes around the step loops in slices, between which they plan.
struct AdminServiceImpl::Flush {
  struct Worker {
    v1::WorkerFlush told;
    int num_left = 0;  // Blocks to free at most: those that were cached at the beginning.
  };

  std::string worker;
  Call call;
  bool ends_pins = false;  // In the first slice of each worker.
  std::mutex mutex = {};
  std::map<std::string, Worker> workers = {};  // By address. Guarded by mutex, as the next.
  bool has_more = false;

  void FreeSlice(const StepLoop::View& loop) {
    std::unique_lock lock(mutex);
    const auto [it, is_first] = workers.try_emplace(loop.address);
    lock.unlock();
    Worker& flushed = it->second;  // This loop's alone.
    flushed.told.set_worker(loop.address);
    if (loop.blocks == nullptr) return;
    if (is_first && ends_pins) loop.blocks->EndPins();
    if (is_first) flushed.num_left = loop.blocks->num_cached_blocks();
    const int num_before = loop.blocks->num_cached_blocks();
    loop.blocks->EvictCached(std::min(kFlushSlice, flushed.num_left));
    const int num_freed = num_before - loop.blocks->num_cached_blocks();
    flushed.num_left = num_freed == 0 ? 0 : std::max(flushed.num_left - num_freed, 0);
    flushed.told.set_freed_blocks(flushed.told.freed_blocks() + num_freed);
    flushed.told.set_cached_blocks(loop.blocks->num_cached_blocks());
    if (flushed.num_left == 0) return;
    lock.lock();
    has_more = true;
  }
};

void AdminServiceImpl::StartFlush(const v1::FlushPrefixCacheRequest& request, const Call& call) {
  GoOnFlushing(std::make_shared<Flush>(request.worker(), call, request.end_pins()));
}

void AdminServiceImpl::GoOnFlushing(const std::shared_ptr<Flush>& flush) {
  flush->has_more = false;
  Ask(
      flush->worker, [flush](const StepLoop::View& loop) { flush->FreeSlice(loop); },
      [this, flush](const absl::Status& status) {
        if (!status.ok()) return flush->call.Finish(status);
        if (flush->has_more) return GoOnFlushing(flush);
        v1::FlushPrefixCacheResponse response;
        for (auto& [address, worker] : flush->workers) *response.add_workers() = std::move(worker.told);
        flush->call.Finish(response);
      });
}

}  // namespace quire
