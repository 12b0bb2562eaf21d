#ifndef QUIRE_KERNELS_CUDA_DEVICE_H_
#define QUIRE_KERNELS_CUDA_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/kernel_table.h"
#include "kernels/types.h"

namespace quire::cuda {

// y[num_rows, num_columns] = x[num_rows, depth] * w[num_columns, depth]^T, or that added to y; sums in float32.
// All three are aligned to 16 bytes.
struct MatmulArgs {
  const uint16_t* x;
  const uint16_t* w;
  void* y;
  int num_rows;
  int num_columns;
  int depth;         // A multiple of 8.
  DataType element;  // Of x and w: bfloat16 or float16.
  DataType y_type;   // `element` or float32.
  bool adds_to_y;
};

// One piece of memory to copy.
struct CopyPiece {
  void* to;
  const void* from;
  size_t bytes;
};

// A recorded sequence of launches and multiplications, with their arguments as they were.
class Graph {
 public:
  virtual ~Graph() = default;
};

// A GPU as the backend sees it: memory, and one stream of work that is done in the order of the calls. CudaDevice is a
// real one. EmulatedDevice runs the same kernels on the CPU, in the emulator of simt/. Used by one thread.
//
// What fails here cannot be mended (an illegal address, a lost device): it ends the process with one line that says
// what was called and what the device answered. Whoever watches the worker recomputes its sequences elsewhere.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string Description() const = 0;  // For example "NVIDIA H200, sm_90".
  // What the bits of a result depend on, besides the kernels of this project.
  virtual std::string NumericsFingerprint() const = 0;
  virtual int num_multiprocessors() const = 0;

  // Zeroed memory of the device, aligned to 256 bytes; null when there is not enough.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // How often memory was freed. While it stays the same every recorded address is good.
  int64_t num_frees() const { return num_frees_; }
  // Zeroed memory of the host that the device reads and writes directly (pinned); null when there is not enough.
  virtual void* AllocateHost(size_t bytes) = 0;
  virtual void FreeHost(void* memory) = 0;
  virtual size_t FreeBytes() const = 0;  // Memory of the device that may still be allocated.

  // Queue a copy; either end may be on the device or in AllocateHost's memory, which must stay as it is until the copy
  // is done.
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  // The same for many pieces at once, none of which overlaps another.
  virtual void CopyBatch(const CopyPiece* pieces, int num_pieces) = 0;
  // Waits until everything queued is done.
  virtual void Synchronize() = 0;
  // Names this point of the stream: marks grow.
  virtual uint64_t Mark() = 0;
  virtual bool IsDone(uint64_t mark) = 0;  // Whether everything queued before the mark is done.
  virtual void Wait(uint64_t mark) = 0;    // Until it is.

  // The kernels for elements of that type, heads of that size and blocks of that many tokens; null when there are none.
  virtual const KernelTable* FindKernels(DataType element, int head_dim, int block_size) const = 0;
  // Queues a kernel over `num_blocks` blocks of threads; at least one. It may begin while what was queued before it
  // ends: before WaitForPriorGrid() it must not touch global memory, and it must call that.
  template <typename Args>
  void Launch(const Kernel<Args>& kernel, const Args& args, int num_blocks) {
    LaunchKernel(kernel.entry, kernel.num_threads, kernel.shared_bytes, &args, sizeof(Args), num_blocks);
  }
  // Queues a multiplication.
  virtual void Multiply(const MatmulArgs& args) = 0;

  // Launches and multiplications between the two are recorded, and not done.
  virtual void BeginRecording() = 0;
  virtual std::unique_ptr<Graph> EndRecording() = 0;
  // Queues what was recorded. The graph must outlive the work.
  virtual void Replay(const Graph& graph) = 0;

 protected:
  virtual void LaunchKernel(const void* entry, int num_threads, size_t shared_bytes, const void* args,
                            size_t args_bytes, int num_blocks) = 0;

  int64_t num_frees_ = 0;  // Counted by Free.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_DEVICE_H_
