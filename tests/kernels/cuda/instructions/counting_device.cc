// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/instructions/counting_device.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <typeinfo>
#include <utility>

#include "kernels/cuda/make_kernel_table.h"

namespace quire::cuda {
namespace {

constexpr int kMultiprocessors = 132;  // An H100 or H200; the plan of a step depends on it.

// An entry is the mangled name of the kernel's class.
struct NameEntry {
  template <typename K>
  static const void* Of() {
    return typeid(K).name();
  }
};

template <int kHeadDim>
const KernelTable* TableForBlocks(int block_size, bool is_sm90) {
  static const KernelTable full = MakeKernelTable<NameEntry, Bf16, UnitSize::kFull, kHeadDim>();
  static const KernelTable small = MakeKernelTable<NameEntry, Bf16, UnitSize::kSmall, kHeadDim>();
  static const KernelTable full_sm90 = MakeKernelTable<NameEntry, Bf16, UnitSize::kFull, kHeadDim, true>();
  return block_size < KvLayout::kUnitTokens ? &small : is_sm90 ? &full_sm90 : &full;
}

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(EXIT_FAILURE);
}

// Returns "AttentionDecode" for "N5quire4cuda15AttentionDecodeI...".
std::string ClassName(const std::string& mangled_class) {
  const std::string scope = "N5quire4cuda";
  char* name = nullptr;
  const size_t length = std::strtoul(mangled_class.c_str() + scope.size(), &name, 10);
  return {name, length};
}

}  // namespace

CountingDevice::CountingDevice(const std::vector<std::string>& ptx) {
  ptxvm::Device::Options options;
  options.num_multiprocessors = kMultiprocessors;
  device_ = ptxvm::Device::Create(options);
  for (const std::string& path : ptx) {
    std::ifstream file(path);
    if (!file) Fail("cannot read " + path);
    modules_.push_back(ptxvm::Module::Load(std::string(std::istreambuf_iterator<char>(file), {})));
  }
}

CountingDevice::~CountingDevice() = default;

int CountingDevice::num_multiprocessors() const {
  return kMultiprocessors;
}

void* CountingDevice::Allocate(size_t bytes) {
  void* const memory = EmulatedDevice::Allocate(bytes);
  if (memory != nullptr && bytes > 0) device_->Register(memory, bytes, "memory", ptxvm::Device::Contents::kDefined);
  return memory;
}

void CountingDevice::Free(void* memory) {
  if (device_->Contains(memory, 1)) device_->Unregister(memory);
  EmulatedDevice::Free(memory);
}

const KernelTable* CountingDevice::FindKernels(DataType element, int head_dim, int block_size) const {
  if (element != DataType::kBFloat16) return nullptr;
  return head_dim == 64    ? TableForBlocks<64>(block_size, is_sm90_)
         : head_dim == 128 ? TableForBlocks<128>(block_size, is_sm90_)
                           : nullptr;
}

std::map<std::string, ExecutedCounts> CountingDevice::TakeCounts() {
  return std::exchange(counts_, {});
}

CountingDevice::FoundKernel CountingDevice::Find(const std::string& mangled_class) const {
  const std::string scope = "N5quire4cuda";  // In the name of the kernel it is replaced by a short form.
  for (const auto& module : modules_) {
    for (const std::string& name : module->Kernels()) {
      if (name.find(mangled_class.substr(scope.size())) != std::string::npos) return {module.get(), name};
    }
  }
  Fail("no kernel for " + mangled_class);
}

void CountingDevice::LaunchKernel(const void* entry, int num_threads, size_t shared_bytes, const void* args,
                                  size_t /*args_bytes*/, int num_blocks) {
  Synchronize();
  const std::string mangled_class = static_cast<const char*>(entry);
  const FoundKernel kernel = Find(mangled_class);
  ptxvm::LaunchConfig config;
  config.grid.x = uint32_t(num_blocks);
  config.block.x = uint32_t(num_threads);
  config.dynamic_shared_bytes = uint32_t(shared_bytes);
  config.check_prior_grid = true;
  const void* const arguments[] = {args};
  const ptxvm::Report report = device_->Launch(*kernel.module, kernel.name, config, arguments);
  if (!report.ok()) Fail(report.ToString());
  ExecutedCounts& counts = counts_[ClassName(mangled_class)];
  counts.instructions += int64_t(report.counters.warp_instructions);
  counts.sectors += int64_t(report.counters.global_sectors);
  counts.shared_accesses += int64_t(report.counters.shared_accesses);
  counts.shared_replays += int64_t(report.counters.shared_conflict_replays);
}

}  // namespace quire::cuda
