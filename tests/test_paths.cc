// SPDX-License-Identifier: Apache-2.0

#include "tests/test_paths.h"

namespace quire {

std::string SourcePath(const std::string& path) {
  return QUIRE_SOURCE_DIR "/" + path;
}

std::string BinaryPath(const std::string& path) {
  return QUIRE_BINARY_DIR "/" + path;
}

}  // namespace quire
