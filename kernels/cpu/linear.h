#ifndef QUIRE_KERNELS_CPU_LINEAR_H_
#define QUIRE_KERNELS_CPU_LINEAR_H_

#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear.h"

namespace quire::cpu {

// Multiplication by packed weights on all threads of a pool. Owned by the executor thread.
class CpuLinear {
 public:
  CpuLinear(const KernelTable* kernels, ThreadPool* pool) : kernels_(*kernels), pool_(pool) {}

  // args.w was made by CpuPackedMatrix::Make; x and y are float32.
  void Run(const LinearArgs& args);

 private:
  // The input of one call, as the kernel takes it.
  struct Input {
    const char* data;
    int64_t stride;  // In elements.
    DataType type;

    const void* row(int64_t index) const { return data + index * stride * int64_t(SizeOf(type)); }
  };

  Input Prepare(const LinearArgs& args, const CpuPackedMatrix& w);

  const KernelTable& kernels_;
  ThreadPool* const pool_;
  Memory rounded_;  // x in bfloat16; grows to the largest call.
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_LINEAR_H_
