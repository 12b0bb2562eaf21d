// SPDX-License-Identifier: Apache-2.0

// The programs have the protections for which cmake/library.cmake asks the compiler and the linker.

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

// A program for 64-bit machines, as a file.
class Elf {
 public:
  explicit Elf(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
  }

  Elf64_Ehdr header() const { return At<Elf64_Ehdr>(0); }

  std::vector<Elf64_Phdr> Segments(uint32_t type) const {
    std::vector<Elf64_Phdr> segments;
    for (int i = 0; i < header().e_phnum; ++i) {
      const auto segment = At<Elf64_Phdr>(header().e_phoff + i * sizeof(Elf64_Phdr));
      if (segment.p_type == type) segments.push_back(segment);
    }
    return segments;
  }

  // Returns the value of an entry of the dynamic section, or 0 when there is no such entry.
  uint64_t Dynamic(int64_t tag) const {
    for (const Elf64_Phdr& segment : Segments(PT_DYNAMIC)) {
      for (uint64_t at = segment.p_offset; at < segment.p_offset + segment.p_filesz; at += sizeof(Elf64_Dyn)) {
        const auto entry = At<Elf64_Dyn>(at);
        if (entry.d_tag == tag) return entry.d_un.d_val;
      }
    }
    return 0;
  }

  // Returns whether the name of a symbol of another library ends with `ending`.
  bool ImportsNameThatEndsWith(const std::string& ending) const {
    // The address of the names is their offset in the file, because the first segment begins with the file.
    const std::string names = bytes_.substr(Dynamic(DT_STRTAB), Dynamic(DT_STRSZ));
    return names.find(ending + std::string(1, '\0')) != std::string::npos;
  }

 private:
  template <typename T>
  T At(uint64_t offset) const {
    T value{};
    if (offset + sizeof(T) <= bytes_.size()) std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  std::string bytes_;
};

class HardeningTest : public testing::TestWithParam<const char*> {
 protected:
  const Elf elf_{BinaryPath(std::string("bin/") + GetParam())};
};

TEST_P(HardeningTest, ItsAddressIsRandom) {
  ASSERT_EQ(elf_.header().e_type, ET_DYN);
  EXPECT_NE(elf_.Dynamic(DT_FLAGS_1) & DF_1_PIE, 0u);
}

TEST_P(HardeningTest, TheTablesOfTheLinkerAreReadOnlyAndItsStackHoldsNoCode) {
  EXPECT_EQ(elf_.Segments(PT_GNU_RELRO).size(), 1u);
  EXPECT_NE(elf_.Dynamic(DT_FLAGS_1) & DF_1_NOW, 0u);
  ASSERT_EQ(elf_.Segments(PT_GNU_STACK).size(), 1u);
  EXPECT_EQ(elf_.Segments(PT_GNU_STACK)[0].p_flags & PF_X, 0u);
}

TEST_P(HardeningTest, ItChecksArraysOnTheStackAndCallsOfTheCLibrary) {
  EXPECT_TRUE(elf_.ImportsNameThatEndsWith("__stack_chk_fail"));
  EXPECT_TRUE(elf_.ImportsNameThatEndsWith("_chk"));
}

INSTANTIATE_TEST_SUITE_P(Programs, HardeningTest,
                         testing::Values("quire", "quire-manager", "quire-worker", "quire-openai", "quire-quantize",
                                         "quirectl"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire
