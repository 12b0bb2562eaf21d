// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_LINE_WRITER_H_
#define QUIRE_KERNELS_CUDA_LINE_WRITER_H_

#include <atomic>
#include <cstdio>
#include <string>

namespace quire::cuda {

// Writes a line about a GPU, such as a warning, or the error that ends the process. It is called by any thread.
using LineWriter = void (*)(bool is_error, const char* line);

namespace internal {
// The program and the library for GPUs each have one.
inline std::atomic<LineWriter> line_writer{nullptr};
}  // namespace internal

// Lets `writer` write all later lines of this program or library. With null, they go to stderr, after "GPU: ".
inline void SetLineWriter(LineWriter writer) {
  internal::line_writer = writer;
}

inline void WriteLine(bool is_error, const std::string& line) {
  if (const LineWriter writer = internal::line_writer; writer != nullptr) {
    writer(is_error, line.c_str());
  } else {
    std::fprintf(stderr, "GPU: %s\n", line.c_str());
  }
  std::fflush(stderr);
}

// Returns the text that printf would print.
template <typename... Values>
std::string FormatLine(const char* format, Values... values) {
  char text[1000];
  const int length = std::snprintf(text, sizeof text, format, values...);
  return std::string(text, length < 0 ? 0 : length < int(sizeof text) ? length : sizeof text - 1);
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_LINE_WRITER_H_
