// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_FATAL_H_
#define QUIRE_KERNELS_CUDA_FATAL_H_

#include <cstdlib>

#include "kernels/cuda/line_writer.h"

namespace quire::cuda {

// Ends the process with one line (line_writer.h), formatted like printf, after an error from which it cannot recover.
// No destructor runs, because destructors would access a device that may be lost.
template <typename... Values>
[[noreturn]] void Fatal(const char* format, Values... values) {
  WriteLine(/*is_error=*/true, FormatLine(format, values...));
  std::_Exit(EXIT_FAILURE);
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_FATAL_H_
