// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_NCCL_GROUP_H_
#define QUIRE_KERNELS_CUDA_NCCL_GROUP_H_

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "kernels/collective.h"
#include "kernels/cuda/nccl_library.h"

namespace quire::cuda {

// A communicator of NCCL among the devices of the ranks of a group, for one session. NCCL does not notice that a rank
// was killed or stopped: its kernels wait for ever. The group notices that within a second and ends. So a thread
// watches the group, and aborts the communicator when the group has ended. Then the stream continues. In turn, an error
// of NCCL ends the group.
//
// All functions belong to the thread that computes.
class NcclGroup {
 public:
  // Tells the other ranks through `group` how to find each other, and connects. Exchanges are queued on `stream`.
  // Returns null and the reason when NCCL cannot, or when the group has ended.
  static std::unique_ptr<NcclGroup> Join(const nccl::Library* library, Collective* group, nccl::Stream stream,
                                         std::string* why_not);
  // Waits until the other ranks have come to the end of the session, too, or until the group has ended. REQUIRES: the
  // exchanges on the stream are done, and no graph holds any.
  ~NcclGroup();

  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // The next two queue the exchanges of Device. After the end of the group they do nothing.
  void AllGather(const void* from, size_t bytes, void* to);
  void AllReduce(const float* part, size_t count, float* sums);

 private:
  NcclGroup(const nccl::Library* library, Collective* group, nccl::Stream stream);

  // Makes the communicator. Returns false, and ends the group, if that fails.
  bool Connect(const nccl::UniqueId& id);
  // Waits until a call is done that has returned `result`. Returns false, and ends the group, if the call has failed.
  // REQUIRES: the mutex is locked.
  bool Await(nccl::Result result, const char* function);
  void EndGroup(nccl::Result result, const char* function);
  // Does what the class comment says until the object ends.
  void Watch();

  const nccl::Library& library_;
  Collective& group_;
  const nccl::Stream stream_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex: a communicator allows one call at a time.
  nccl::Comm comm_ = nullptr;
  bool is_over_ = false;  // The watch aborts the communicator, or has done so.
  bool is_leaving_ = false;
  std::thread watch_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_NCCL_GROUP_H_
