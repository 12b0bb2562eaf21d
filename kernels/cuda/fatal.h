// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_FATAL_H_
#define QUIRE_KERNELS_CUDA_FATAL_H_

#include <cstdio>
#include <cstdlib>

namespace quire::cuda {

// Ends the process with one line, formatted like printf, after an error from which it cannot recover. No destructor
// runs, because destructors would access a device that may be lost.
template <typename... Values>
[[noreturn]] void Fatal(const char* format, Values... values) {
  std::fprintf(stderr, "GPU: ");
  std::fprintf(stderr, format, values...);
  std::fprintf(stderr, "\n");
  std::fflush(stderr);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_FATAL_H_
