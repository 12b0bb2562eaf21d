// SPDX-License-Identifier: Apache-2.0

// A library that says which version of NCCL it is, and has nothing else of it.

#include <cstdlib>

extern "C" int ncclGetVersion(int* version) {
  *version = std::atoi(std::getenv("QUIRE_TEST_NCCL_VERSION"));
  return 0;
}
