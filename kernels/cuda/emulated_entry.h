// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_EMULATED_ENTRY_H_
#define QUIRE_KERNELS_CUDA_EMULATED_ENTRY_H_

namespace quire::cuda {

// The type of Kernel::entry on the emulated device: a function that every emulated thread calls.
using EntryFunction = void (*)(const void* args);

struct EmulatedEntry {
  template <typename K>
  static const void* Of() {
    const EntryFunction run = [](const void* args) { K::Run(*static_cast<const typename K::Args*>(args)); };
    return reinterpret_cast<const void*>(run);
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_EMULATED_ENTRY_H_
