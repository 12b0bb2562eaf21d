// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_PROGRAM_FOLDER_H_
#define QUIRE_KERNELS_PROGRAM_FOLDER_H_

#include <unistd.h>

#include <string>

namespace quire {

// Returns the folder of the running program, with a slash at the end. The libraries that it loads only when it needs
// them are there.
inline std::string ProgramFolder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, length > 0 ? length : 0);
  return program.substr(0, program.rfind('/') + 1);
}

}  // namespace quire

#endif  // QUIRE_KERNELS_PROGRAM_FOLDER_H_
