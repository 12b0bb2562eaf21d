// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/nccl_group.h"

#include <chrono>
#include <vector>

namespace quire::cuda {
namespace {

constexpr std::chrono::milliseconds kLookInterval(5);

// What each rank tells the others before they connect.
struct Hello {
  int version = 0;
  nccl::Result result = nccl::kSuccess;  // Of ncclGetUniqueId, on rank 0.
  nccl::UniqueId id = {};                // Of rank 0.
};

}  // namespace

std::unique_ptr<NcclGroup> NcclGroup::Join(const nccl::Library* library, Collective* group, nccl::Stream stream,
                                           std::string* why_not) {
  Hello own{.version = library->version};
  if (group->rank() == 0) own.result = library->get_unique_id(&own.id);
  std::vector<Hello> all(group->size());
  if (group->AllGather(&own, sizeof(own), all.data())) {
    for (int rank = 1; rank < group->size(); ++rank) {
      if (all[rank].version == all[0].version) continue;
      group->Abort(BackendStatus::Error("rank 0 has NCCL " + nccl::FormatVersion(all[0].version) + ", and rank " +
                                        std::to_string(rank) + " has " + nccl::FormatVersion(all[rank].version)));
    }
    if (all[0].result != nccl::kSuccess) {
      group->Abort(BackendStatus::Error(std::string("ncclGetUniqueId of rank 0 has failed: ") +
                                        library->get_error_string(all[0].result)));
    }
    std::unique_ptr<NcclGroup> joined(new NcclGroup(library, group, stream));
    if (group->Status().ok() && joined->Connect(all[0].id)) return joined;
  }
  *why_not = group->Status().message();
  return nullptr;
}

NcclGroup::NcclGroup(const nccl::Library* library, Collective* group, nccl::Stream stream)
    : library_(*library), group_(*group), stream_(stream) {}

bool NcclGroup::Connect(const nccl::UniqueId& id) {
  std::unique_lock lock(mutex_);
  nccl::Config config;
  const nccl::Result result = library_.comm_init_rank_config(&comm_, group_.size(), id, group_.rank(), &config);
  if (comm_ == nullptr) {
    EndGroup(result, "ncclCommInitRankConfig");
    return false;
  }
  watch_ = std::thread([this] { Watch(); });
  return Await(result, "ncclCommInitRankConfig");
}

NcclGroup::~NcclGroup() {
  std::unique_lock lock(mutex_);
  if (comm_ == nullptr) return;
  if (!is_over_ && Await(library_.comm_finalize(comm_), "ncclCommFinalize")) {
    library_.comm_destroy(comm_);
    comm_ = nullptr;
  }
  is_leaving_ = true;
  lock.unlock();
  changed_.notify_one();
  watch_.join();
}

void NcclGroup::EndGroup(nccl::Result result, const char* function) {
  group_.Abort(BackendStatus::Error("rank " + std::to_string(group_.rank()) + ": " + function + " of NCCL " +
                                    nccl::FormatVersion(library_.version) + ": " + library_.get_error_string(result) +
                                    ": " + library_.get_last_error(comm_)));
}

bool NcclGroup::Await(nccl::Result result, const char* function) {
  while (result == nccl::kInProgress && group_.Status().ok()) {
    std::this_thread::yield();
    nccl::Result error = nccl::kSuccess;
    result = library_.comm_get_async_error(comm_, &error);
    if (result == nccl::kSuccess) result = error;
  }
  if (result == nccl::kSuccess) return true;
  if (result != nccl::kInProgress) EndGroup(result, function);
  is_over_ = true;
  changed_.notify_one();
  return false;
}

void NcclGroup::AllGather(const void* from, size_t bytes, void* to) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  Await(library_.all_gather(from, to, bytes, nccl::kUint8, comm_, stream_), "ncclAllGather");
}

void NcclGroup::AllReduce(const float* part, size_t count, float* sums) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  Await(library_.all_reduce(part, sums, count, nccl::kFloat32, nccl::kSum, comm_, stream_), "ncclAllReduce");
}

// An abort ends when all graphs are gone that hold exchanges. The thread that computes destroys them when the stream
// continues, so this thread does not hold the mutex meanwhile.
void NcclGroup::Watch() {
  std::unique_lock lock(mutex_);
  while (!is_over_ && !is_leaving_) {
    changed_.wait_for(lock, kLookInterval);
    if (is_over_ || is_leaving_) break;
    nccl::Result error = nccl::kSuccess;
    const nccl::Result result = library_.comm_get_async_error(comm_, &error);
    if (result != nccl::kSuccess) error = result;
    if (error != nccl::kSuccess && error != nccl::kInProgress) EndGroup(error, "ncclCommGetAsyncError");
    is_over_ = !group_.Status().ok();
  }
  if (comm_ == nullptr) return;
  lock.unlock();
  library_.comm_abort(comm_);
}

}  // namespace quire::cuda
