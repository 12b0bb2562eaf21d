#ifndef QUIRE_KERNELS_CPU_ROPE_APPEND_H_
#define QUIRE_KERNELS_CPU_ROPE_APPEND_H_

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/rotary_table.h"
#include "kernels/rope.h"

namespace quire::cpu {

// Norms and rotates the Q and K heads of one row of the batch and stores its K and V. REQUIRES: the table has the row's
// position.
void RopeAppendToken(const RopeAppendArgs& args, const KernelTable& kernels, const RotaryTable& rotary, int row);

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_ROPE_APPEND_H_
