// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_EMULATED_DEVICE_H_
#define QUIRE_KERNELS_CUDA_EMULATED_DEVICE_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"

namespace quire::cuda {

// A device without a GPU. Kernels run in the emulator of simt/, which checks every one of them; all other work is done
// in plain loops. Queued work is done as late as possible: all of it when somebody waits for it, and one piece when
// somebody asks whether it is done. A problem that the emulator finds ends the process with the emulator's report, and
// so does a kernel that is recorded before it was loaded. The device is slow, about a millisecond per thread block, and
// is meant for tests.
class EmulatedDevice : public Device {
 public:
  // With `is_sm90`, the device has the kernels for compute capability 9.0.
  explicit EmulatedDevice(bool is_sm90 = false);
  ~EmulatedDevice() override;

  std::string Description() const override { return "emulated GPU"; }
  std::string NumericsFingerprint() const override { return "emulated"; }
  int num_multiprocessors() const override { return 2; }

  void* Allocate(size_t bytes) override;
  void Free(void* memory) override;
  void* AllocateHost(size_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* memory) override { FreeUnrecorded(memory); }
  size_t FreeBytes() const override { return size_t{256} << 20; }
  size_t TotalBytes() const override { return size_t{256} << 20; }

  void Copy(void* to, const void* from, size_t bytes) override;
  void CopyBatch(const CopyPiece* pieces, int num_pieces) override;
  void Synchronize() override { Wait(num_queued_); }
  uint64_t Mark() override { return num_queued_; }
  bool IsDone(uint64_t mark) override;
  void Wait(uint64_t mark) override;

  // Number of calls of Copy that were not recorded.
  int num_copies() const { return num_copies_; }
  // Number of times that a recording was begun.
  int num_recordings() const { return num_recordings_; }
  // Number of times that recorded work was queued.
  int num_replays() const { return num_replays_; }

  // Supports both element types, heads of 16, 32, 64 and 128, and blocks of all sizes.
  const KernelTable* FindKernels(DataType element, int head_dim, int block_size) const override;
  void Prepare(const KernelTable& kernels) override;
  bool HasLaunched(const void* entry) const override { return launched_.contains(entry); }
  void Multiply(const MatmulArgs& args) override;
  bool MultiplyInt8(const Int8MatmulArgs& args) override;
  bool MultiplyFp8(const Fp8MatmulArgs& args) override;

  // Exchanges are done at once, so a rank may use the group for others between them.
  BackendStatus CheckGroups() override { return BackendStatus::Ok(); }
  BackendStatus JoinGroup(Collective* group) override;
  void LeaveGroup() override { group_ = nullptr; }
  void AllGather(const void* from, size_t bytes, void* to) override;
  void AllReduce(const float* part, size_t count, float* sums) override;

  void BeginRecording() override;
  std::unique_ptr<Graph> EndRecording() override;
  void Replay(const Graph& graph) override;

 protected:
  void LaunchKernel(const void* entry, int num_threads, size_t shared_bytes, const void* args, size_t args_bytes,
                    int num_blocks) override;

 private:
  class Recording;
  using Memory = std::unique_ptr<char, void (*)(void*)>;
  struct Allocation {
    Memory memory;
    size_t bytes;
  };

  void Queue(std::function<void()> work);
  void DoNext();
  // Queues work that waits for other ranks.
  void Exchange(std::function<void()> work);
  // Returns whether the address lies in memory that was allocated here. CUDA calls all other host memory pageable.
  bool IsAllocated(const void* memory) const;
  void MultiplyNow(const MatmulArgs& args);
  void LaunchNow(const void* entry, int num_threads, size_t shared_bytes, const void* args, int num_blocks);

  const bool is_sm90_;
  std::map<const char*, Allocation> allocations_;  // Keyed by aligned address.
  std::unique_ptr<Recording> recording_;           // Null when nothing is being recorded.
  std::deque<std::function<void()>> queue_;        // Work that is not done yet.
  uint64_t num_queued_ = 0, num_done_ = 0;         // Counted from the construction on.
  uint64_t num_launches_ = 0;
  std::set<const void*> launched_;  // The entries of LaunchKernel.
  std::set<const void*> loaded_;    // Entries that were prepared or launched.
  Collective* group_ = nullptr;
  int num_copies_ = 0;
  int num_recordings_ = 0;
  int num_replays_ = 0;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_EMULATED_DEVICE_H_
