// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ROPE_APPEND_H_
#define QUIRE_KERNELS_CPU_ROPE_APPEND_H_

#include <vector>

#include "kernels/cpu/rotary_table.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/rope.h"

namespace quire::cpu {

// Consecutive rows of the batch whose tokens are consecutive in one unit. A run is stored by one thread, so that no two
// threads write to the same cache line of a prompt.
struct AppendRun {
  int first_row;
  int num_rows;
};

// Overwrites *runs and reuses its memory.
void ListAppendRuns(const BatchView& batch, const KvLayout& layout, std::vector<AppendRun>* runs);

// Norms and rotates the Q and K heads of the rows and stores their K and V. REQUIRES: the positions of the rows are
// prepared in the table.
void RopeAppend(const RopeAppendArgs& args, const KernelTable& kernels, const RotaryTable& rotary,
                const AppendRun& run);

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_ROPE_APPEND_H_
