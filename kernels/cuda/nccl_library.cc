// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/nccl_library.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <type_traits>

namespace quire::cuda::nccl {
namespace {

const std::string& Needed() {
  static const std::string text = "ranks on GPUs need NCCL " + FormatVersion(kLeastVersion) +
                                  " or newer: install libnccl2 of NVIDIA or nvidia-nccl of Python, and name its folder "
                                  "in LD_LIBRARY_PATH";
  return text;
}

std::unique_ptr<Library> Load(const std::string& name, std::string* why_not) {
  void* const loaded = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    *why_not = name + " cannot be loaded: " + dlerror() + "; " + Needed();
    return nullptr;
  }
  const char* missing = nullptr;
  const auto find = [&](const char* function, auto* pointer) {
    void* const found = dlsym(loaded, function);
    if (found == nullptr && missing == nullptr) missing = function;
    *pointer = reinterpret_cast<std::remove_pointer_t<decltype(pointer)>>(found);
  };
  Result (*get_version)(int*) = nullptr;
  find("ncclGetVersion", &get_version);
  if (get_version == nullptr) {
    *why_not = name + " is not NCCL: it has no function ncclGetVersion; " + Needed();
    return nullptr;
  }
  auto library = std::make_unique<Library>();
  if (get_version(&library->version) != kSuccess || library->version < kLeastVersion) {
    *why_not = name + " is NCCL " + FormatVersion(library->version) + "; " + Needed();
    return nullptr;
  }
  find("ncclGetUniqueId", &library->get_unique_id);
  find("ncclCommInitRankConfig", &library->comm_init_rank_config);
  find("ncclCommGetAsyncError", &library->comm_get_async_error);
  find("ncclCommFinalize", &library->comm_finalize);
  find("ncclCommDestroy", &library->comm_destroy);
  find("ncclCommAbort", &library->comm_abort);
  find("ncclAllGather", &library->all_gather);
  find("ncclAllReduce", &library->all_reduce);
  find("ncclGetErrorString", &library->get_error_string);
  find("ncclGetLastError", &library->get_last_error);
  if (missing == nullptr) return library;
  *why_not = name + " is NCCL " + FormatVersion(library->version) + " without the function " + missing;
  return nullptr;
}

}  // namespace

// Up to 2.8, the numbers had a digit less.
std::string FormatVersion(int version) {
  const int major = version < 10'000 ? version / 1000 : version / 10'000;
  const int minor = version < 10'000 ? version / 100 % 10 : version / 100 % 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

const Library* Open(const std::string& name, std::string* why_not) {
  static std::mutex mutex;
  static auto* const opened = new std::map<std::string, std::unique_ptr<Library>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<Library>& library = (*opened)[name];
  if (library == nullptr) library = Load(name, why_not);
  return library.get();
}

}  // namespace quire::cuda::nccl
