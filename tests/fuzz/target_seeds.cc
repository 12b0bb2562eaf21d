// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/target_seeds.h"

namespace quire {

// The build defines both for each target.
const char* const kSeedFolders = QUIRE_SEED_FOLDERS;
const uint64_t kChangedSeeds = QUIRE_CHANGED_SEEDS;

}  // namespace quire
