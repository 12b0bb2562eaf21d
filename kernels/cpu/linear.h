#ifndef QUIRE_KERNELS_CPU_LINEAR_H_
#define QUIRE_KERNELS_CPU_LINEAR_H_

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear.h"

namespace quire::cpu {

// args.w was made by CpuPackedMatrix::Make; x and y are float32.
void Linear(const LinearArgs& args, const KernelTable& kernels, ThreadPool* pool);

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_LINEAR_H_
