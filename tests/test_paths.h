// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_TEST_PATHS_H_
#define QUIRE_TESTS_TEST_PATHS_H_

#include <string>

namespace quire {

// The path of a file of the repository, given from its root, for example SourcePath("tests/golden/models/llama2").
std::string SourcePath(const std::string& path);

// The path of a file in the build folder, for example BinaryPath("bin/quire-worker").
std::string BinaryPath(const std::string& path);

}  // namespace quire

#endif  // QUIRE_TESTS_TEST_PATHS_H_
