// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_BLOCKS_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_BLOCKS_H_

#include "kernels/cpu/linear/linear_task.h"

// Products by weights in blocks. They are compiled apart from the other kernels of an instruction set
// (table/blocks_avx2.cc and so on), from linear_block_kernel.h.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

void LinearQ8_0(const LinearTask& task);
void LinearQ4_K(const LinearTask& task);
void LinearQ5_K(const LinearTask& task);
void LinearQ6_K(const LinearTask& task);
void LinearIQ4_NL(const LinearTask& task);
void LinearMXFP4(const LinearTask& task);

void QuantizeBlocks(const QuantizeBlocksTask& task);

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_BLOCKS_H_
