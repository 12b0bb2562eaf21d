// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_DEVICE_H_
#define QUIRE_KERNELS_CUDA_DEVICE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/backend_status.h"
#include "kernels/ceil_div.h"
#include "kernels/collective.h"
#include "kernels/cuda/kernel_table.h"
#include "kernels/types.h"

namespace quire::cuda {

// Returns how many thread blocks to launch for `count` pieces of work when each block does `per_block` of them.
inline int NumBlocks(int64_t count, int per_block) {
  constexpr int64_t kMost = 1 << 16;  // With more work, each block of the kernel loops.
  return int(std::clamp<int64_t>(CeilDiv(count, per_block), 1, kMost));
}

// y[num_rows, num_columns] = x[num_rows, depth] * w[num_columns, depth]^T, or y += that product. Sums are in float32.
// A product that is added to a y of 16 bits may be rounded to 16 bits before that: on Hopper, all algorithms of
// cuBLASLt that do not cut the depth do so. All three are aligned to 16 bytes.
struct MatmulArgs {
  const uint16_t* x;
  const uint16_t* w;
  void* y;
  int num_rows;
  int num_columns;
  int depth;         // A multiple of 8.
  DataType element;  // Type of x and w: bfloat16 or float16.
  DataType y_type;   // `element` or float32.
  bool adds_to_y;
  int y_stride = 0;  // Elements from a row of y to the next; 0 means num_columns.
};

// y[num_rows, num_columns] = x[num_rows, depth] * w[num_columns, depth]^T of whole numbers. The sums, which must be
// below 2^31 in magnitude, are exact. All three are aligned to 16 bytes.
struct Int8MatmulArgs {
  const int8_t* x;
  const int8_t* w;
  int32_t* y;
  int num_rows;
  int num_columns;  // A multiple of 16.
  int depth;        // A multiple of 16.
};

// y[num_rows, num_columns] (+)= x[num_rows, depth] * w[num_columns, depth]^T of numbers of FP8 (E4M3), where each row
// of x and of w has a scale; or with has_blocks, 128 columns of a row of x share one, and 128 rows and 128 columns of
// w. The products are added and scaled in float32, or with a few bits less. If y has 16 bits and is added to, the
// product may be rounded before. All are aligned to 16 bytes.
struct Fp8MatmulArgs {
  const uint8_t* x;
  const uint8_t* w;
  const float* x_scales;  // [num_rows], or in blocks [depth / 128][num_rows]
  const float* w_scales;  // [num_columns], or [ceil(num_columns / 128)][depth / 128, rounded up to a multiple of 4]
  void* y;
  int num_rows;     // In blocks it is a multiple of 4.
  int num_columns;  // In blocks it is a multiple of 8.
  int depth;        // A multiple of 16, in blocks of 128.
  DataType y_type;  // A type of 16 bits or float32.
  bool adds_to_y;
  bool has_blocks = false;
};

// One piece of memory to copy.
struct CopyPiece {
  void* to;
  const void* from;
  size_t bytes;
};

// A recorded sequence of launches and multiplications with the arguments of their recording.
class Graph {
 public:
  virtual ~Graph() = default;
};

// A GPU as the backend sees it: memory, and one stream of work that is done in the order of the calls. CudaDevice is a
// real GPU. EmulatedDevice runs the same kernels on the CPU, in the emulator of simt/. Used by one thread.
//
// The process cannot recover from failures here (an illegal address, a lost device). A failure ends the process with
// one line that names the call and the device's error. What the manager does then is in docs/architecture.md,
// section 11.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string Description() const = 0;  // For example "NVIDIA H200, sm_90, PCI 0000:1b:00.0".
  // Names everything on which the bits of a result depend, apart from the kernels of this project.
  virtual std::string NumericsFingerprint() const = 0;
  virtual int num_multiprocessors() const = 0;

  // Zeroed memory of the device, aligned to 256 bytes; null when there is not enough.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Frees memory that no recorded work uses.
  void FreeUnrecorded(void* memory) {
    Free(memory);
    --num_frees_;
  }
  // Number of times that memory was freed by Free. While it stays the same, all recorded addresses are valid.
  int64_t num_frees() const { return num_frees_; }
  // Zeroed host memory that the device reads and writes directly (pinned); null when there is not enough.
  virtual void* AllocateHost(size_t bytes) = 0;
  virtual void FreeHost(void* memory) = 0;
  virtual size_t FreeBytes() const = 0;   // Device memory that can still be allocated. Any thread may ask.
  virtual size_t TotalBytes() const = 0;  // All memory of the device, free or not. Any thread may ask.

  // Queues a copy. Both ends may be on the device or in memory of AllocateHost. Host memory must not change until the
  // copy is done.
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  // Queues the copies of many pieces at once. No piece may overlap another.
  virtual void CopyBatch(const CopyPiece* pieces, int num_pieces) = 0;
  // Waits until all queued work is done.
  virtual void Synchronize() = 0;
  // Returns a number that names this point of the stream. Later marks are larger.
  virtual uint64_t Mark() = 0;
  // Returns whether all work queued before the mark is done. Ends the process if there is no progress for too long.
  virtual bool IsDone(uint64_t mark) = 0;
  virtual void Wait(uint64_t mark) = 0;  // Waits until IsDone(mark).

  // Returns the kernels for this element type, head size and number of tokens per block, or null when there are none.
  virtual const KernelTable* FindKernels(DataType element, int head_dim, int block_size) const = 0;
  // Loads the code of all kernels of the table.
  virtual void Prepare(const KernelTable& kernels) = 0;
  // Queues a kernel over `num_blocks` thread blocks; at least one. Code cannot be loaded while work is recorded, so a
  // kernel that is recorded must have been prepared, or launched, before. The kernel may begin while earlier
  // work ends. Therefore it must call WaitForPriorGrid(), and must not touch global memory before that.
  template <typename Args>
  void Launch(const Kernel<Args>& kernel, const Args& args, int num_blocks) {
    LaunchKernel(kernel.entry, kernel.num_threads, kernel.shared_bytes, &args, sizeof(Args), num_blocks);
  }
  // Returns whether the kernel with this entry has been launched or recorded.
  virtual bool HasLaunched(const void* entry) const = 0;
  // Queues a multiplication.
  virtual void Multiply(const MatmulArgs& args) = 0;
  // Queues a multiplication of whole numbers. Returns false, and queues nothing, if the device's library has none of
  // that shape.
  virtual bool MultiplyInt8(const Int8MatmulArgs& args) = 0;
  // Queues a multiplication of numbers of FP8. Returns false in the same case.
  virtual bool MultiplyFp8(const Fp8MatmulArgs& args) = 0;

  // Returns why this cannot be the device of a rank, or OK.
  virtual BackendStatus CheckGroups() = 0;
  // Connects this device with the devices of the other ranks of `group`. All ranks call this at the same point among
  // their exchanges. When the group ends, queued exchanges end, and what they were to write is undefined. When an
  // exchange fails, the device ends the group. The group must exist until LeaveGroup.
  virtual BackendStatus JoinGroup(Collective* group) = 0;
  // Ends exchanges with the other devices. Graphs that hold exchanges must be gone.
  virtual void LeaveGroup() = 0;
  // The next two queue exchanges. All ranks call them in the same order. REQUIRES: JoinGroup was OK.
  // The same as Collective::AllGather, with memory of the device.
  virtual void AllGather(const void* from, size_t bytes, void* to) = 0;
  // sums[i] = part[i] of all ranks, added in an order of the library's choice. All ranks get the same bits.
  virtual void AllReduce(const float* part, size_t count, float* sums) = 0;

  // Launches, multiplications and exchanges between these two calls are recorded and not executed. EndRecording returns
  // null, and forgets them, when there is not enough memory for the graph.
  virtual void BeginRecording() = 0;
  virtual std::unique_ptr<Graph> EndRecording() = 0;
  // Queues the recorded work. The graph must outlive that work.
  virtual void Replay(const Graph& graph) = 0;

 protected:
  virtual void LaunchKernel(const void* entry, int num_threads, size_t shared_bytes, const void* args,
                            size_t args_bytes, int num_blocks) = 0;

  int64_t num_frees_ = 0;  // Free increments it.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_DEVICE_H_
