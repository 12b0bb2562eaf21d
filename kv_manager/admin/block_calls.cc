#include "kv_manager/admin/block_calls.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_reason.h"
#include "kv_manager/admin/block_watch.h"
#include "kv_manager/admin/loop_answers.h"
#include "kv_manager/admin/request_names.h"
#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {

grpc::ServerWriteReactor<grpc::ByteBuffer>* BlockCalls::WatchBlocks(grpc::CallbackServerContext* context,
                                                                    const grpc::ByteBuffer& request_bytes) {
  v1::WatchBlocksRequest request;
  absl::Status status = ReadRequest(request_bytes, &request);
  const uint32_t interval_ms = request.has_interval_ms() ? request.interval_ms() : kDefaultWatchIntervalMs;
  if (status.ok()) status = CheckRange("interval_ms", interval_ms, kMinWatchIntervalMs, kMaxWatchIntervalMs);
  if (num_watches_.fetch_add(1) >= kMaxWatches && status.ok()) {
    status = WithReason(absl::ResourceExhaustedError(absl::StrCat(
                            kMaxWatches, " calls of WatchBlocks are running, and the limit is ", kMaxWatches)),
                        "TOO_MANY_WATCHES");
  }
  auto* const watch = new BlockWatch(asker_, &num_watches_, context, request.worker(), interval_ms);
  status.ok() ? watch->Start() : watch->Refuse(status);
  return watch;
}

void BlockCalls::DescribeBlock(const v1::DescribeBlockRequest& request, const AdminCall& call) {
  std::string worker = request.worker();
  if (worker.empty()) {
    const ManagerStatus manager = asker_->engine()->status();
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
  asker_->Ask(
      worker,
      [answer, block = request.block()](const LoopView& loop) {
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
        const RequestNames names(*registry_);
        v1::DescribeBlockResponse& response = answer->block.description;
        for (int i = 0; i < response.owners_size(); ++i) {
          response.mutable_owners(i)->set_request_id(names.Of(answer->block.owners[i]));
        }
        call.Finish(response);
      });
}

}  // namespace quire
