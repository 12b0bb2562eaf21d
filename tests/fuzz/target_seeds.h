// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_FUZZ_TARGET_SEEDS_H_
#define QUIRE_TESTS_FUZZ_TARGET_SEEDS_H_

#include <cstdint>

namespace quire {

// The inputs of a fuzz target in seeds_test.cc. Every target has its own values (target_seeds.cc), so that
// seeds_test.cc is compiled once for all of them.

// Folders of seeds, relative to the root of the repository and separated by ':'.
extern const char* const kSeedFolders;
// The number of changed seeds that the test runs.
extern const uint64_t kChangedSeeds;

}  // namespace quire

#endif  // QUIRE_TESTS_FUZZ_TARGET_SEEDS_H_
