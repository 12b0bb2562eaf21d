// SPDX-License-Identifier: Apache-2.0

// Checks nvcc's output for the kernels: their registers, and the instructions on which their speed depends. No GPU is
// needed.

#include <gtest/gtest.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <typeinfo>
#include <vector>

#include "kernels/cuda/compiled_kernels.h"
#include "kernels/cuda/device_options.h"
#include "kernels/cuda/make_kernel_table.h"
#include "tests/kernels/cuda/cubin.h"
#include "tests/test_paths.h"

namespace quire::cuda {
namespace {

const std::string kTable = SourcePath("tests/kernels/cuda/compiled_kernels.txt");

// Returns the kernel class in a mangled name, for example "AttentionDecode<Bf16, kFull, 64, 3>".
std::string KernelName(const char* mangled) {
  char* const demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr);
  std::string name = demangled == nullptr ? mangled : demangled;
  std::free(demangled);
  const std::string start = "RunKernel<";  // The name is void quire::cuda::RunKernel<CLASS>(CLASS::Args).
  if (const size_t at = name.find(start); at != std::string::npos) {
    name = name.substr(at + start.size(), name.find(">(") - at - start.size());
  }
  const std::pair<std::string, std::string> replacements[] = {
      {"quire::cuda::", ""}, {"(UnitSize)0", "kFull"}, {"(UnitSize)1", "kSmall"}};
  for (const auto& [from, to] : replacements) {
    for (size_t at; (at = name.find(from)) != std::string::npos;) name.replace(at, from.size(), to);
  }
  while (name.back() == ' ') name.pop_back();
  return name;
}

struct BlockShape {
  int num_threads;
  size_t shared_bytes;
};

// Records the kernels of a table.
struct NotingEntry {
  static std::map<std::string, BlockShape>& Kernels() {
    static auto* const kernels = new std::map<std::string, BlockShape>;
    return *kernels;
  }
  template <typename K>
  static const void* Of() {
    Kernels()[KernelName(typeid(K).name())] = {K::kThreads, K::kSharedBytes};
    return nullptr;
  }
};

template <typename Element, int... kHeadDims>
void NoteTables() {
  (MakeKernelTable<NotingEntry, Element, UnitSize::kFull, kHeadDims, /*kIsSm90=*/true>(), ...);
  (MakeKernelTable<NotingEntry, Element, UnitSize::kSmall, kHeadDims>(), ...);
}

// Returns all kernels that tables name.
const std::map<std::string, BlockShape>& Shapes() {
  if (NotingEntry::Kernels().empty()) {
    NoteTables<Bf16, 32, 64, 80, 96, 128, 256>();
    NoteTables<F16, 32, 64, 80, 96, 128, 256>();
  }
  return NotingEntry::Kernels();
}

bool IsRoundedFp8(const std::string& name) {
  return name.find("Fp8Numbers") != std::string::npos || name.find("Fp8BlockNumbers") != std::string::npos;
}

// Returns the architectures for which the kernel is compiled.
std::vector<int> Architectures(const std::string& name) {
  if (name.rfind("AttentionPrefillSm90<", 0) == 0 || IsRoundedFp8(name)) return {90};
  return {80, 90};
}

// Keyed by name and architecture. A kernel that several files of the library contain is listed once.
const std::map<std::pair<std::string, int>, MachineCode>& Compiled() {
  static const auto* const kernels = [] {
    auto* const all = new std::map<std::pair<std::string, int>, MachineCode>;
    for (MachineCode& code : ReadMachineCode(QUIRE_COMPILED_KERNELS)) {
      all->insert({{KernelName(code.symbol.c_str()), code.architecture}, code});
    }
    return all;
  }();
  return *kernels;
}

// Returns the number of blocks that a multiprocessor holds at a time. It has 64 warps and 65536 registers. Registers
// are allocated in units of 8 per thread and 4 warps. The system takes 1 KiB of shared memory per block.
int BlocksPerMultiprocessor(const BlockShape& shape, int registers, int architecture) {
  const int num_warps = shape.num_threads / simt::kWarpSize;
  const int warps_in_registers = 65536 / ((registers + 7) / 8 * 8 * simt::kWarpSize) / 4 * 4;
  const int in_shared_memory = (architecture == 80 ? 164 : 228) * 1024 / int(shape.shared_bytes + 1024);
  return std::min({32, 64 / num_warps, warps_in_registers / num_warps, in_shared_memory});
}

std::string TableLine(const std::string& name, const BlockShape& shape) {
  char start[100];
  std::snprintf(start, sizeof(start), "%-42s %4d %7d", name.c_str(), shape.num_threads, int(shape.shared_bytes));
  std::string line = start;
  if (Architectures(name).size() == 1) line += "     -   -     -";
  for (const int architecture : Architectures(name)) {
    const MachineCode& code = Compiled().at({name, architecture});
    char numbers[100];
    std::snprintf(numbers, sizeof(numbers), " %5d %3d %5d", code.registers,
                  BlocksPerMultiprocessor(shape, code.registers, architecture), code.num_instructions());
    line += numbers;
  }
  return line;
}

void WriteTable() {
  std::ofstream file(kTable);
  file << "# What nvcc " << QUIRE_NVCC_RELEASE << " makes of the GPU kernels; made by kernels_cuda_compiled_test with "
       << "QUIRE_UPDATE_GOLDEN=1.\n# Threads and bytes of shared memory of a block; for sm_80, then for sm_90, "
          "registers "
       << "of a thread, blocks\n# that a multiprocessor holds, and instructions of the machine code. A dash: not "
          "compiled.\n";
  for (const auto& [name, shape] : Shapes()) file << TableLine(name, shape) << "\n";
}

std::string FirstWords(const std::string& line) {
  return line.substr(0, line.find("  "));
}

TEST(CompiledKernelsTest, EveryTableIsCompiledForItsArchitectures) {
  for (const auto& [name, shape] : Shapes()) {
    for (const int architecture : {80, 90}) {
      const std::vector<int> wanted = Architectures(name);
      EXPECT_EQ(Compiled().contains({name, architecture}), std::count(wanted.begin(), wanted.end(), architecture) > 0)
          << name << " for sm_" << architecture;
    }
  }
  for (const auto& [key, code] : Compiled()) EXPECT_TRUE(Shapes().contains(key.first)) << key.first;
}

TEST(CompiledKernelsTest, TablesAreFoundForTheHeadsAndBlocksThatAreCompiled) {
  for (const DataType element : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const int head_dim : kHeadDims) {
      std::set<const KernelTable*> tables;
      for (const int block_size : {1, 2, 4, 8, 16, 32, 128}) {
        tables.insert(FindCompiledKernels(element, head_dim, block_size, /*is_sm90=*/false));
      }
      EXPECT_EQ(tables.size(), 2u);
      EXPECT_FALSE(tables.contains(nullptr));
    }
    for (const int block_size : {-1, 0, 3, 5, 12, 24}) {
      EXPECT_EQ(FindCompiledKernels(element, 64, block_size, false), nullptr);
    }
    for (const int head_dim : {0, 16, 48, 112, 192, 512}) {
      EXPECT_EQ(FindCompiledKernels(element, head_dim, 16, false), nullptr);
    }
  }
  EXPECT_EQ(FindCompiledKernels(DataType::kFloat32, 64, 16, false), nullptr);
}

TEST(CompiledKernelsTest, KernelsForComputeCapability90AreOnlyInItsTables) {
  for (const DataType element : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const int head_dim : kHeadDims) {
      for (const int block_size : {8, 16, 32}) {
        for (const bool is_sm90 : {false, true}) {
          const KernelTable& table = *FindCompiledKernels(element, head_dim, block_size, is_sm90);
          const bool is_wanted = is_sm90 && block_size >= 16 && (head_dim == 64 || head_dim == 128);
          EXPECT_EQ(table.attention_prefill_sm90.entry != nullptr, is_wanted)
              << "heads of " << head_dim << ", blocks of " << block_size;
          EXPECT_NE(table.attention_prefill.entry, nullptr);
          if (table.int8_kv == nullptr) continue;
          EXPECT_EQ(table.int8_kv->attention_prefill_sm90.entry != nullptr, is_wanted)
              << "heads of " << head_dim << ", blocks of " << block_size << ", K and V of int8";
          EXPECT_TRUE(!is_wanted || table.int8_kv->attention_prefill_sm90.entry != table.attention_prefill_sm90.entry);
        }
      }
    }
  }
}

// Other releases of nvcc give other numbers.
TEST(CompiledKernelsTest, RegistersAndInstructionsAreAtMostThoseOfTheTable) {
  if (std::getenv("QUIRE_UPDATE_GOLDEN") != nullptr) WriteTable();
  std::ifstream file(kTable);
  std::string line;
  std::getline(file, line);
  if (line.find(std::string("nvcc ") + QUIRE_NVCC_RELEASE + " ") == std::string::npos) {
    GTEST_SKIP() << "nvcc " << QUIRE_NVCC_RELEASE << ", the table: " << line;
  }
  std::set<std::string> listed;
  while (std::getline(file, line)) {
    if (line[0] == '#') continue;
    const std::string name = FirstWords(line);
    listed.insert(name);
    const auto shape = Shapes().find(name);
    ASSERT_TRUE(shape != Shapes().end()) << "no kernel any more: " << line;
    std::istringstream numbers(line.substr(line.find("  ")));
    int threads, shared;
    numbers >> threads >> shared;
    EXPECT_EQ(shape->second.num_threads, threads) << name;
    EXPECT_EQ(int(shape->second.shared_bytes), shared) << name;
    if (Architectures(name).size() == 1) {
      std::string dash;
      numbers >> dash >> dash >> dash;
    }
    for (const int architecture : Architectures(name)) {
      int registers, blocks, instructions;
      numbers >> registers >> blocks >> instructions;
      const MachineCode& code = Compiled().at({name, architecture});
      EXPECT_LE(code.registers, registers) << name << " on sm_" << architecture;
      EXPECT_LE(code.num_instructions(), instructions) << name << " on sm_" << architecture;
    }
  }
  for (const auto& [name, shape] : Shapes()) EXPECT_TRUE(listed.contains(name)) << "not in the table: " << name;
}

TEST(CompiledKernelsTest, NothingIsInLocalMemory) {
  for (const auto& [key, code] : Compiled()) {
    EXPECT_GT(code.registers, 0) << key.first;
    EXPECT_EQ(code.stack_bytes, 0) << key.first;
    EXPECT_EQ(code.Count(kLdl) + code.Count(kStl), 0) << key.first;
  }
}

// A launch may overlap the end of the grid before it, whose results must not be read too early.
TEST(CompiledKernelsTest, GlobalMemoryIsNotTouchedBeforeThePriorGridHasEnded) {
  for (const auto& [key, code] : Compiled()) {
    if (key.second < 90) continue;
    EXPECT_GT(code.Count(kAcqbulk), 0) << key.first;
    EXPECT_EQ(code.accesses_before_wait, 0) << key.first;
  }
}

// Calls check(code, head_dim, name) for the kernels of class `kind` and expects at least one.
template <typename F>
void ForEachOf(const std::string& kind, F check) {
  int count = 0;
  for (const auto& [key, code] : Compiled()) {
    if (key.first.rfind(kind, 0) != 0) continue;
    SCOPED_TRACE(key.first + " on sm_" + std::to_string(key.second));
    int head_dim = 0;
    for (const int size : {32, 64, 80, 96, 128, 256}) {
      if (key.first.find(", " + std::to_string(size)) != std::string::npos) head_dim = size;
    }
    check(code, head_dim);
    ++count;
  }
  EXPECT_GT(count, 0) << kind;
}

// A unit of 16 tokens needs head_dim / 16 products of 16 by 16 by 8 twice for its scores, and as many for its values.
// One load from shared memory gets four operands, which serve two products. The copies to shared memory are of 16
// bytes. With int8, a load gets eight operands, or four at the end of a head with an odd number of chunks.
void CheckAttention(const MachineCode& code, int head_dim, int units, bool int8_kv) {
  EXPECT_EQ(code.Count(kHmma), units * head_dim / 4);
  EXPECT_EQ(code.Count(kLdsm), int8_kv ? units * 2 * ((head_dim + 31) / 32) : units * head_dim / 8);
  EXPECT_GT(code.Count(kLdgsts), 0);
  EXPECT_EQ(code.Count(kLdgsts), code.Count(kLdgsts, 16));
}

TEST(CompiledKernelsTest, AttentionMultipliesTilesAndCopiesAsynchronously) {
  for (const std::string element : {"Bf16", "F16", "Int8Kv<"}) {
    const bool int8_kv = element == "Int8Kv<";
    ForEachOf("AttentionDecode<" + element,
              [&](const MachineCode& code, int head_dim) { CheckAttention(code, head_dim, 1, int8_kv); });
    ForEachOf("AttentionPrefill<" + element, [&](const MachineCode& code, int head_dim) {
      CheckAttention(code, head_dim, head_dim > 128 ? 2 : 4, int8_kv);
    });
  }
}

// A quarter of a block, 32 columns, needs two products for each tile of eight tokens and each tile of rows, of which a
// warp has two with 32 tokens and more. There are two loops, one for groups of columns that end within blocks. Weights
// are converted by a few instructions in registers: the table counts everything, for loops that are not unrolled
// further.
TEST(CompiledKernelsTest, QuantizedProductsMultiplyTilesAndCopyAsynchronously) {
  int count = 0;
  for (const auto& [key, code] : Compiled()) {
    if (key.first.rfind("QuantizedProductKernel<", 0) != 0) continue;
    SCOPED_TRACE(key.first + " on sm_" + std::to_string(key.second));
    const int token_tiles = key.first[key.first.size() - 2] - '0';
    EXPECT_EQ(code.Count(kHmma), 2 * 8 * token_tiles * (token_tiles < 4 ? 1 : 2));
    EXPECT_GT(code.Count(kLdgsts), 0);
    EXPECT_EQ(code.Count(kLdgsts), code.Count(kLdgsts, 16));
    EXPECT_EQ(code.Count(kLdsm), 0);
    ++count;
  }
  EXPECT_EQ(count, 2 * 3 * 4 * 2);  // Elements, formats, numbers of tokens, architectures.
}

// In int8, a block of 128 columns needs four products for each tile of eight tokens and each tile of rows. For two of
// them, a tile of rows takes two loads, and a tile of tokens one. In FP8 it needs four products of a warp group, which
// read shared memory.
TEST(CompiledKernelsTest, ProductsOfRoundedRowsMultiplyBytesAndCopyAsynchronously) {
  int count = 0;
  for (const auto& [key, code] : Compiled()) {
    if (key.first.rfind("RoundedProductKernel<", 0) != 0) continue;
    SCOPED_TRACE(key.first + " on sm_" + std::to_string(key.second));
    const bool is_fp8 = IsRoundedFp8(key.first);
    const int token_tiles = key.first[key.first.size() - 2] - '0', row_tiles = token_tiles < 4 ? 1 : 2;
    EXPECT_EQ(code.Count(kImma), is_fp8 ? 0 : 4 * token_tiles * row_tiles);
    EXPECT_EQ(code.Count(kLdsm), is_fp8 ? 0 : 2 * (2 * row_tiles + token_tiles));
    EXPECT_EQ(code.Count(kQgmma), is_fp8 ? 4 : 0);
    EXPECT_EQ(code.Count(kHmma), 0);
    EXPECT_GT(code.Count(kLdgsts), 0);
    EXPECT_EQ(code.Count(kLdgsts), code.Count(kLdgsts, 16));
    ++count;
  }
  // Elements, numbers of tokens, int8 on two architectures, and FP8 of rows and of blocks on one.
  EXPECT_EQ(count, 2 * 4 * 4);
}

// A tile of 128 tokens needs head_dim / 16 products for its scores and 8 for its values. The scores of the first tile
// and the values of the last one are outside of the loop. K and V are copied in bulk, with int8 16 bytes at a time.
TEST(CompiledKernelsTest, PrefillForComputeCapability90MultipliesTilesByWarpGroups) {
  ForEachOf("AttentionPrefillSm90<", [](const MachineCode& code, int head_dim) {
    EXPECT_EQ(code.Count(kHgmma), 2 * head_dim / 16);
    EXPECT_EQ(code.Count(kHgmmaRows), 2 * 8);
    EXPECT_EQ(code.Count(kHmma) + code.Count(kLdsm), 0);
    const bool int8_kv = code.symbol.find("Int8Kv") != std::string::npos;
    EXPECT_EQ(code.Count(kUblkcp) > 0, !int8_kv);
    EXPECT_EQ(code.Count(kLdgsts) > 0, int8_kv);
    EXPECT_EQ(code.Count(kLdgsts), code.Count(kLdgsts, 16));
  });
}

// In the loop the products of values are begun, and then comes the wait for the scores, the 64 exponentials of a lane,
// and the wait for the values. The compiler may move this wait, and if it came first, exponentials and products would
// take turns.
TEST(CompiledKernelsTest, PrefillForComputeCapability90ComputesExponentialsWhileItMultiplies) {
  ForEachOf("AttentionPrefillSm90<", [](const MachineCode& code, int head_dim) {
    if (head_dim == 64) return;  // The products of values end before the exponentials begin.
    auto at = std::find(code.opcodes.begin(), code.opcodes.end(), int(kHgmmaRows));
    at = std::find(at, code.opcodes.end(), int(kWarpgroup));
    ASSERT_NE(at, code.opcodes.end());
    const auto next_wait = std::find(at + 1, code.opcodes.end(), int(kWarpgroup));
    EXPECT_GT(std::count(at, next_wait, int(kMufu)), 60);
  });
}

// Weights and tables are read like the rows: a lane that read its eight floats one by one would touch the sectors of
// all of them eight times.
TEST(CompiledKernelsTest, RowsAndTheirWeightsAreReadSixteenBytesAtATime) {
  for (const char* kind : {"RmsNormKernel", "GatedKernel", "ActivateKernel", "AddBiasKernel", "ScaleRowsKernel"}) {
    ForEachOf(kind, [](const MachineCode& code, int) { EXPECT_EQ(code.Count(kLdg), code.Count(kLdg, 16)); });
  }
  // A position and a slot are single numbers.
  ForEachOf("RopeAppendKernel",
            [](const MachineCode& code, int) { EXPECT_LE(code.Count(kLdg) - code.Count(kLdg, 16), 2); });
}

TEST(CompiledKernelsTest, RowsAreReadAndWrittenSixteenBytesAtATime) {
  for (const char* kind :
       {"RmsNormKernel", "GatedKernel", "ActivateKernel", "AddBiasKernel", "ScaleRowsKernel", "GatherRowsKernel",
        "GatherScaledRowsKernel", "CopyBlocksKernel", "RopeAppendKernel<Bf16", "RopeAppendKernel<F16"}) {
    ForEachOf(kind, [](const MachineCode& code, int) {
      EXPECT_GT(code.Count(kLdg, 16), 0);
      EXPECT_GT(code.Count(kStg), 0);
      EXPECT_EQ(code.Count(kStg), code.Count(kStg, 16));
    });
  }
  // The scale of a head is one number.
  ForEachOf("RopeAppendKernel<Int8Kv<", [](const MachineCode& code, int) {
    EXPECT_GT(code.Count(kStg, 16), 0);
    EXPECT_LE(code.Count(kStg) - code.Count(kStg, 16), 2);
  });
}

}  // namespace
}  // namespace quire::cuda
