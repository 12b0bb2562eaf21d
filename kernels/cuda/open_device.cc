// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/open_device.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "kernels/program_folder.h"

namespace quire::cuda {
namespace {

constexpr char kLibrary[] = "libquire_cuda.so";

// Returns a sentence about an error of the loader. Its text begins with the name of the file that it could not load.
std::string WhyNotLoaded(const std::string& path, const std::string& error) {
  std::string text = "the library of --gpu-library, " + path + ", cannot be loaded: " + error;
  const size_t name = error.find("libcublas");
  if (name == std::string::npos) return text;
  const size_t version = error.find(".so.", name);
  text += "; it needs cuBLAS";
  if (version != std::string::npos) {
    const size_t begin = version + 4;
    text += " of CUDA " + error.substr(begin, error.find_first_not_of("0123456789", begin) - begin);
  }
  return text + ": install libcublas of NVIDIA or nvidia-cublas of Python, and name its folder in LD_LIBRARY_PATH";
}

}  // namespace

std::string WhyNoHeads(int head_dim) {
  if (std::find(std::begin(kHeadDims), std::end(kHeadDims), head_dim) != std::end(kHeadDims)) return "";
  std::string text = "there are no kernels for heads of " + std::to_string(head_dim) + " dimensions, but for ";
  for (const int known : kHeadDims) text += std::to_string(known) + (known == std::end(kHeadDims)[-1] ? "" : ", ");
  return text;
}

std::unique_ptr<Device> OpenDevice(const std::string& library, const DeviceOptions& options, std::string* why_not) {
  *why_not = WhyNoHeads(options.head_dim);
  if (!why_not->empty()) return nullptr;
  const std::string path = library.empty() ? ProgramFolder() + kLibrary : library;
  if (access(path.c_str(), F_OK) != 0) {
    *why_not = library.empty() ? "there is no " + path +
                                     ": this program was built without CUDA, or --gpu-library must say where the "
                                     "library is"
                               : "--gpu-library is " + path + ", and there is no such file";
    return nullptr;
  }
  // The library is never closed, because it lives as long as the process.
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    *why_not = WhyNotLoaded(path, dlerror());
    return nullptr;
  }
  void* const open = dlsym(loaded, kOpenCudaDevice);
  if (open == nullptr) {
    *why_not =
        "--gpu-library is " + path + ", which is not Quire's library for GPUs: it has no function " + kOpenCudaDevice;
    return nullptr;
  }
  return reinterpret_cast<OpenCudaDeviceFunction*>(open)(options, why_not);
}

}  // namespace quire::cuda
