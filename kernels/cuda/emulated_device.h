#ifndef QUIRE_KERNELS_CUDA_EMULATED_DEVICE_H_
#define QUIRE_KERNELS_CUDA_EMULATED_DEVICE_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"

namespace quire::cuda {

// A device without a GPU: kernels run in the emulator of simt/, every one of them checked, everything else in plain
// loops. What is queued is done as late as may be: when somebody waits for it, and piece by piece when somebody looks.
// A problem that the emulator finds ends the process with its report. Slow, about a millisecond for each block of
// threads: for tests.
class EmulatedDevice : public Device {
 public:
  EmulatedDevice();
  ~EmulatedDevice() override;

  std::string Description() const override { return "emulated GPU"; }
  std::string NumericsFingerprint() const override { return "emulated"; }
  int num_multiprocessors() const override { return 2; }

  void* Allocate(size_t bytes) override;
  void Free(void* memory) override;
  void* AllocateHost(size_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* memory) override { Free(memory); }
  size_t FreeBytes() const override { return size_t{256} << 20; }

  void Copy(void* to, const void* from, size_t bytes) override;
  void CopyBatch(const CopyPiece* pieces, int num_pieces) override;
  void Synchronize() override { Wait(num_queued_); }
  uint64_t Mark() override { return num_queued_; }
  bool IsDone(uint64_t mark) override;
  void Wait(uint64_t mark) override;

  // How often recorded work was queued.
  int num_replays() const { return num_replays_; }

  // Elements of both types, heads of 16, 32, 64 and 128, blocks of all sizes.
  const KernelTable* FindKernels(DataType element, int head_dim, int block_size) const override;
  void Multiply(const MatmulArgs& args) override;

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
  // Whether it lies in memory that was allocated here; other memory of the host is what CUDA calls pageable.
  bool IsAllocated(const void* memory) const;
  void MultiplyNow(const MatmulArgs& args);
  void LaunchNow(const void* entry, int num_threads, size_t shared_bytes, const void* args, int num_blocks);

  std::map<const char*, Allocation> allocations_;  // By aligned address.
  std::unique_ptr<Recording> recording_;           // Null: nothing is recorded.
  std::deque<std::function<void()>> queue_;        // Not done yet.
  uint64_t num_queued_ = 0, num_done_ = 0;         // Since the beginning.
  uint64_t num_launches_ = 0;
  int num_replays_ = 0;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_EMULATED_DEVICE_H_
