// SPDX-License-Identifier: Apache-2.0

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

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* BlockCalls::WatchBlocks(
    grpc::CallbackServerContext* context) {
  auto* const watch = new BlockWatch(asker_, &num_watches_, &requests_->receiving, context);
  watch->Receive();
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
        const RequestNames names(requests_->registry);
        v1::DescribeBlockResponse& response = answer->block.description;
        for (int i = 0; i < response.owners_size(); ++i) {
          response.mutable_owners(i)->set_request_id(names.Of(answer->block.owners[i]));
        }
        call.Finish(response);
      });
}

}  // namespace quire
