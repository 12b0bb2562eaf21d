// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_CUDA_DEVICE_H_
#define QUIRE_KERNELS_CUDA_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_options.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/nccl_group.h"
#include "kernels/cuda/progress_watch.h"

namespace quire::cuda {

// An NVIDIA GPU, sm_80 or newer.
class CudaDevice : public Device {
 public:
  // Returns null, and sets the reason, if there is no driver, no such GPU, the GPU is too old, or the driver cannot
  // load the kernels for it.
  static std::unique_ptr<CudaDevice> Create(const DeviceOptions& options, std::string* reason);
  ~CudaDevice() override;

  std::string Description() const override;
  std::string NumericsFingerprint() const override;
  int num_multiprocessors() const override { return properties_.multiProcessorCount; }

  void* Allocate(size_t bytes) override;
  void Free(void* memory) override;
  void* AllocateHost(size_t bytes) override;
  void FreeHost(void* memory) override;
  size_t FreeBytes() const override;
  size_t TotalBytes() const override { return properties_.totalGlobalMem; }

  void Copy(void* to, const void* from, size_t bytes) override;
  void CopyBatch(const CopyPiece* pieces, int num_pieces) override;
  void Synchronize() override;
  uint64_t Mark() override;
  bool IsDone(uint64_t mark) override;
  void Wait(uint64_t mark) override;

  const KernelTable* FindKernels(DataType element, int head_dim, int block_size) const override;
  void Prepare(const KernelTable& kernels) override;
  bool HasLaunched(const void* entry) const override {
    const auto found = loaded_.find(entry);
    return found != loaded_.end() && found->second.is_launched;
  }
  void Multiply(const MatmulArgs& args) override;
  bool MultiplyInt8(const Int8MatmulArgs& args) override;
  bool MultiplyFp8(const Fp8MatmulArgs& args) override;

  BackendStatus CheckGroups() override;
  BackendStatus JoinGroup(Collective* group) override;
  void LeaveGroup() override;
  void AllGather(const void* from, size_t bytes, void* to) override;
  void AllReduce(const float* part, size_t count, float* sums) override;

  void BeginRecording() override;
  std::unique_ptr<Graph> EndRecording() override;
  void Replay(const Graph& graph) override;

  // Measurements use the stream of all work, and the size of the second-level cache in bytes.
  cudaStream_t stream() const { return stream_; }
  size_t l2_bytes() const { return properties_.l2CacheSize; }

 protected:
  void LaunchKernel(const void* entry, int num_threads, size_t shared_bytes, const void* args, size_t args_bytes,
                    int num_blocks) override;

 private:
  CudaDevice(const DeviceOptions& options, const cudaDeviceProp& properties);

  std::string Model() const;  // For example "NVIDIA H200, sm_90".
  void MakeCurrent() const;
  struct LoadedKernel {
    bool waits_for_prior_grid;  // Its code contains WaitForPriorGrid().
    bool is_launched;
  };
  // Does the preparations that a kernel needs once.
  LoadedKernel& Load(const void* entry, size_t shared_bytes);

  // The event of a mark, or of a later mark that reuses it.
  cudaEvent_t EventOf(uint64_t mark) const { return events_[mark % kNumEvents]; }

  static constexpr int kNumEvents = 16;

  const DeviceOptions options_;
  const cudaDeviceProp properties_;
  bool has_batch_copies_ = false;
  bool is_recording_ = false;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[kNumEvents] = {};
  uint64_t num_marks_ = 0;
  ProgressWatch watch_;
  std::unique_ptr<Matmul> matmul_;
  std::unique_ptr<NcclGroup> group_;
  std::unordered_map<const void*, LoadedKernel> loaded_;  // Results of Load, by entry.

  // Arguments of CopyBatch in CUDA's form; kept to reuse their memory.
  std::vector<void*> batch_to_;
  std::vector<const void*> batch_from_;
  std::vector<size_t> batch_bytes_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_CUDA_DEVICE_H_
