// SPDX-License-Identifier: Apache-2.0

#include "kernels/ucx/open_group.h"

#include <dlfcn.h>
#include <unistd.h>

#include "kernels/program_folder.h"

namespace quire::ucx {
namespace {

constexpr char kLibrary[] = "libquire_ucx.so";

}  // namespace

std::unique_ptr<SessionCollective> OpenGroup(const GroupTransport& transport, std::string* why_not) {
  const std::string path = ProgramFolder() + kLibrary;
  if (access(path.c_str(), F_OK) != 0) {
    *why_not = "there is no " + path + ": this program was built without UCX (libucx-dev of Debian)";
    return nullptr;
  }
  // The library is never closed, because it lives as long as the process.
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const open = loaded == nullptr ? nullptr : dlsym(loaded, kOpenGroup);
  if (open == nullptr) {
    *why_not = std::string("the library for groups of ranks cannot be loaded: ") + dlerror();
    return nullptr;
  }
  return reinterpret_cast<OpenGroupFunction*>(open)(transport, why_not);
}

}  // namespace quire::ucx
