// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_NCCL_LIBRARY_H_
#define QUIRE_KERNELS_CUDA_NCCL_LIBRARY_H_

#include <climits>
#include <cstddef>
#include <string>

namespace quire::cuda {

// The part of NVIDIA's NCCL that the ranks of a group need, opened at run time. So a worker without ranks does not need
// it. The types and numbers are those of its documented interface, which has kept them since 2.14.
namespace nccl {

inline constexpr char kLibraryName[] = "libnccl.so.2";
inline constexpr int kLeastVersion = 21400;  // The first one with communicators that do not block.

using Comm = void*;    // ncclComm_t
using Stream = void*;  // cudaStream_t

// ncclResult_t. Other numbers are other errors.
enum Result : int { kSuccess = 0, kInProgress = 7 };
// ncclDataType_t and ncclRedOp_t.
enum DataType : int { kUint8 = 1, kFloat32 = 7 };
enum Operation : int { kSum = 0 };

struct UniqueId {
  char bytes[128];
};

// ncclConfig_t of version 2.14. A newer library takes its own defaults for what it has beyond that.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kLeastVersion;
  int blocking = 0;
};

// Formats a number of ncclGetVersion, as in "2.14.3".
std::string FormatVersion(int version);

struct Library {
  int version;
  Result (*get_unique_id)(UniqueId* id);
  Result (*comm_init_rank_config)(Comm* comm, int num_ranks, UniqueId id, int rank, Config* config);
  Result (*comm_get_async_error)(Comm comm, Result* error);
  Result (*comm_finalize)(Comm comm);
  Result (*comm_destroy)(Comm comm);
  Result (*comm_abort)(Comm comm);
  Result (*all_gather)(const void* from, void* to, size_t count, DataType type, Comm comm, Stream stream);
  Result (*all_reduce)(const void* from, void* to, size_t count, DataType type, Operation operation, Comm comm,
                       Stream stream);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Comm comm);
};

// Opens the library of that name, or returns null and says which version is needed. The library stays open for as long
// as the process lives.
const Library* Open(const std::string& name, std::string* why_not);

}  // namespace nccl
}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_NCCL_LIBRARY_H_
