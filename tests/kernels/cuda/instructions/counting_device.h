// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_INSTRUCTIONS_COUNTING_DEVICE_H_
#define QUIRE_TESTS_KERNELS_CUDA_INSTRUCTIONS_COUNTING_DEVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/emulated_device.h"
#include "ptxvm.h"

namespace quire::cuda {

// What the launches of a kernel have executed.
struct ExecutedCounts {
  int64_t instructions = 0;  // Of warps, in PTX.
  int64_t sectors = 0;       // Of 32 bytes of global memory, added up over the accesses of warps.
  int64_t shared_accesses = 0;
  int64_t shared_replays = 0;  // Further passes of accesses with bank conflicts.
};

// A device that executes the PTX of the kernels on a virtual GPU (ptxvm.h) and counts. A problem that the virtual GPU
// reports ends the process. It has the kernels for bfloat16 and the heads of 64 and 128, and if it is told so also
// those for compute capability 9.0 alone.
class CountingDevice : public EmulatedDevice {
 public:
  // `ptx` are files that nvcc has written, which contain all of these kernels.
  explicit CountingDevice(const std::vector<std::string>& ptx);
  ~CountingDevice() override;

  int num_multiprocessors() const override;
  void* Allocate(size_t bytes) override;
  void Free(void* memory) override;
  const KernelTable* FindKernels(DataType element, int head_dim, int block_size) const override;

  void set_is_sm90(bool is_sm90) { is_sm90_ = is_sm90; }

  // Returns the counts since the last call, by the class of the kernel, for example "AttentionDecode".
  std::map<std::string, ExecutedCounts> TakeCounts();

 protected:
  void LaunchKernel(const void* entry, int num_threads, size_t shared_bytes, const void* args, size_t args_bytes,
                    int num_blocks) override;

 private:
  struct FoundKernel {
    ptxvm::Module* module;
    std::string name;
  };
  // Returns the kernel whose mangled name contains the mangled name of its class.
  FoundKernel Find(const std::string& mangled_class) const;

  bool is_sm90_ = false;
  std::unique_ptr<ptxvm::Device> device_;
  std::vector<std::shared_ptr<ptxvm::Module>> modules_;
  std::map<std::string, ExecutedCounts> counts_;
};

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_INSTRUCTIONS_COUNTING_DEVICE_H_
