// SPDX-License-Identifier: Apache-2.0

// Runs a fuzz target without libFuzzer: over its seeds, and over some thousand changed seeds. So every build runs the
// targets, the sanitizers watch them, and an input that has failed once stays a test. The environment variable
// QUIRE_FUZZ_ROUNDS sets another number of changed seeds, QUIRE_FUZZ_SEED draws other changes, and QUIRE_FUZZ_SEEDS
// names further folders of seeds, with colons between them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fuzz/target_seeds.h"
#include "tests/random.h"
#include "tests/test_paths.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Targets whose inputs are messages have their own mutator.
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                                                unsigned int seed);

namespace {

// The number in an environment variable, or `otherwise` if it is not set.
uint64_t NumberOf(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

quire::Random& RandomBytes() {
  static quire::Random random(NumberOf("QUIRE_FUZZ_SEED", 1));
  return random;
}

}  // namespace

// Changes, inserts, removes or repeats some bytes.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  quire::Random& random = RandomBytes();
  std::string bytes(reinterpret_cast<const char*>(data), size);
  for (int i = random.Between(1, 4); i > 0; --i) {
    const int at = random.Below(static_cast<int>(bytes.size()) + 1);
    const int action = random.Below(4);
    if (action == 0) {
      bytes.insert(at, 1, static_cast<char>(random.Below(256)));
    } else if (action == 1) {
      bytes.erase(at, random.Between(1, 8));
    } else if (action == 2) {
      const int from = random.Below(static_cast<int>(bytes.size()) + 1);
      bytes.insert(at, bytes.substr(from, random.Between(1, 16)));
    } else if (!bytes.empty()) {
      bytes[at % bytes.size()] =
          random.OneIn(2) ? "\"\\{}[],:0919-et"[random.Below(15)] : static_cast<char>(random.Next());
    }
  }
  bytes.resize(std::min(bytes.size(), max_size));
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

namespace quire {
namespace {

constexpr size_t kMaxChangedBytes = 64 << 10;

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const char* const more = std::getenv("QUIRE_FUZZ_SEEDS");
  std::istringstream folders(kSeedFolders + (more == nullptr ? std::string() : ":" + std::string(more)));
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const auto& file : std::filesystem::directory_iterator(SourcePath(folder))) {
      std::ifstream in(file.path(), std::ios::binary);
      seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
  }
  return seeds;
}

void RunInput(const std::string& input) {
  // A copy of exactly the input's size, so that the address sanitizer sees a read beyond its end.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

TEST(SeedsTest, EverySeedRuns) {
  const std::vector<std::string> seeds = Seeds();
  ASSERT_FALSE(seeds.empty()) << kSeedFolders;
  for (const std::string& seed : seeds) RunInput(seed);
}

TEST(SeedsTest, ChangedSeedsRun) {
  const std::vector<std::string> seeds = Seeds();
  std::vector<uint8_t> buffer(kMaxChangedBytes);
  const uint64_t num_rounds = NumberOf("QUIRE_FUZZ_ROUNDS", kChangedSeeds);
  uint64_t num_executed = 0;
  for (uint64_t round = 0; round < num_rounds; ++round) {
    std::string input = seeds[round % seeds.size()];
    if (input.size() > kMaxChangedBytes) continue;
    ++num_executed;
    // One change in half of all rounds, and more in the others. Many changes of one input leave little that is right.
    for (int i = 0; i == 0 || (i < 5 && RandomBytes().OneIn(2)); ++i) {
      std::memcpy(buffer.data(), input.data(), input.size());
      const size_t size = LLVMFuzzerCustomMutator == nullptr
                              ? LLVMFuzzerMutate(buffer.data(), input.size(), buffer.size())
                              : LLVMFuzzerCustomMutator(buffer.data(), input.size(), buffer.size(),
                                                        static_cast<unsigned int>(RandomBytes().Next()));
      input.assign(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(size));
    }
    RunInput(input);
  }
  std::printf("%llu changed seeds were executed\n", static_cast<unsigned long long>(num_executed));
  EXPECT_GT(num_executed, 0u);
}

}  // namespace
}  // namespace quire
