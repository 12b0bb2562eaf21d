// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_CUBIN_H_
#define QUIRE_TESTS_KERNELS_CUDA_CUBIN_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace quire::cuda {

// Bits 0 to 11 of the instructions of sm_80 and sm_90 that the tests count. `cuobjdump --dump-sass` shows them beside
// the names.
enum Opcode {
  kAcqbulk = 0x82e,    // griddepcontrol.wait
  kHmma = 0x23c,       // mma
  kImma = 0x237,       // mma of whole numbers
  kLdsm = 0x83b,       // ldmatrix
  kLdgsts = 0xfae,     // cp.async
  kHgmma = 0x9f0,      // wgmma, both matrices in shared memory
  kHgmmaRows = 0xdf0,  // wgmma, the first matrix in registers
  kQgmma = 0x9f3,      // wgmma of FP8, both matrices in shared memory
  kWarpgroup = 0x9c5,  // wgmma.fence, and wgmma.wait_group
  kUblkcp = 0x3ba,     // cp.async.bulk
  kMufu = 0x308,       // ex2 and the like
  kLdg = 0x981,        // ld.global
  kStg = 0x986,        // st.global
  kLdl = 0x983,        // Local memory: a register spill, or an array that does not fit into registers.
  kStl = 0x387,
};

// A kernel as machine code.
struct MachineCode {
  std::string symbol;
  int architecture = 0;  // 80 for sm_80.
  int registers = 0;     // Registers per thread.
  int stack_bytes = 0;
  // Accesses to global memory before the first griddepcontrol.wait, or in all if there is none.
  int accesses_before_wait = 0;
  // Number of instructions by opcode and by the size in bytes of the access, 0 for opcodes without an access size.
  std::map<std::pair<int, int>, int> counts;
  std::vector<int> opcodes;  // Of all instructions in their order.

  int Count(Opcode opcode) const;
  int Count(Opcode opcode, int bytes) const;
  int num_instructions() const;
};

// Returns all kernels of an object, library or program whose device code is not compressed. cuobjdump would show the
// same, but not every machine with nvcc has it.
std::vector<MachineCode> ReadMachineCode(const std::string& path);

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_CUBIN_H_
