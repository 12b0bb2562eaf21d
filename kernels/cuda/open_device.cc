// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/open_device.h"

#include <dlfcn.h>
#include <unistd.h>

namespace quire::cuda {
namespace {

constexpr char kLibrary[] = "libquire_cuda.so";

// Returns the folder of the running program, with a slash at the end.
std::string ProgramFolder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, length > 0 ? length : 0);
  return program.substr(0, program.rfind('/') + 1);
}

}  // namespace

std::unique_ptr<Device> OpenDevice(const std::string& library, const DeviceOptions& options, std::string* why_not) {
  const std::string path = library.empty() ? ProgramFolder() + kLibrary : library;
  if (access(path.c_str(), F_OK) != 0) {
    *why_not = "there is no " + path;
    if (library.empty()) *why_not = "this program was built without CUDA: " + *why_not;
    return nullptr;
  }
  // The library is never closed, because it lives as long as the process.
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const open = loaded != nullptr ? dlsym(loaded, kOpenCudaDevice) : nullptr;
  if (open == nullptr) {
    *why_not = dlerror();
    return nullptr;
  }
  return reinterpret_cast<OpenCudaDeviceFunction*>(open)(options, why_not);
}

}  // namespace quire::cuda
