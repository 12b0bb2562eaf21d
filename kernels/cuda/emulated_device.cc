// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/emulated_device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "kernels/cuda/emulated_entry.h"
#include "kernels/cuda/make_kernel_table.h"
#include "kernels/fp8.h"
#include "kernels/half_float.h"
#include "kernels/simt/launch.h"

namespace quire::cuda {
namespace {

constexpr size_t kAlignment = 256;

template <typename Element, int kHeadDim>
const KernelTable* TableForBlocks(int block_size, bool is_sm90) {
  static const KernelTable full = MakeKernelTable<EmulatedEntry, Element, UnitSize::kFull, kHeadDim>();
  static const KernelTable small = MakeKernelTable<EmulatedEntry, Element, UnitSize::kSmall, kHeadDim>();
  static const KernelTable full_sm90 = MakeKernelTable<EmulatedEntry, Element, UnitSize::kFull, kHeadDim, true>();
  return block_size < KvLayout::kUnitTokens ? &small : is_sm90 ? &full_sm90 : &full;
}

template <typename Element>
const KernelTable* TableForHeads(int head_dim, int block_size, bool is_sm90) {
  switch (head_dim) {
    case 16:
      return TableForBlocks<Element, 16>(block_size, is_sm90);
    case 32:
      return TableForBlocks<Element, 32>(block_size, is_sm90);
    case 64:
      return TableForBlocks<Element, 64>(block_size, is_sm90);
    case 128:
      return TableForBlocks<Element, 128>(block_size, is_sm90);
    default:
      return nullptr;
  }
}

float Widen(uint16_t bits, DataType type) {
  return type == DataType::kBFloat16 ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits});
}

uint16_t Narrow(float value, DataType type) {
  return type == DataType::kBFloat16 ? ToBFloat16(value).bits : ToFloat16(value).bits;
}

// Returns the product of the scales of a row of x and of w in a block of columns.
float Fp8Scale(const Fp8MatmulArgs& args, int row, int column, int block) {
  if (!args.has_blocks) return args.x_scales[row] * args.w_scales[column];
  const int64_t stride = CeilDiv(args.depth / kScaledColumns, kScaleMultiple) * kScaleMultiple;
  return args.x_scales[block * int64_t{args.num_rows} + row] * args.w_scales[column / kScaledRows * stride + block];
}

// y[i] = sum (+ y[i]).
void StoreSum(float sum, void* y, int64_t i, DataType type, bool adds_to_y) {
  if (type == DataType::kFloat32) {
    float* const to = static_cast<float*>(y) + i;
    *to = sum + (adds_to_y ? *to : 0);
  } else {
    uint16_t* const to = static_cast<uint16_t*>(y) + i;
    *to = Narrow(sum + (adds_to_y ? Widen(*to, type) : 0), type);
  }
}

std::vector<float> Widened(const uint16_t* from, size_t count, DataType type) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = Widen(from[i], type);
  return values;
}

}  // namespace

class EmulatedDevice::Recording : public Graph {
 public:
  std::vector<std::function<void()>> work;
  bool has_exchanges = false;
};

EmulatedDevice::EmulatedDevice(bool is_sm90) : is_sm90_(is_sm90) {}
EmulatedDevice::~EmulatedDevice() = default;

void* EmulatedDevice::Allocate(size_t bytes) {
  Memory memory(static_cast<char*>(std::calloc(bytes + kAlignment, 1)), &std::free);  // Pages are allocated on access.
  if (memory == nullptr) return nullptr;
  char* const data = memory.get() + (kAlignment - reinterpret_cast<uintptr_t>(memory.get()) % kAlignment) % kAlignment;
  allocations_.emplace(data, Allocation{std::move(memory), bytes});
  return data;
}

// Waits for queued work, like CUDA.
void EmulatedDevice::Free(void* memory) {
  Synchronize();
  allocations_.erase(static_cast<char*>(memory));
  ++num_frees_;
}

bool EmulatedDevice::IsAllocated(const void* memory) const {
  auto after = allocations_.upper_bound(static_cast<const char*>(memory));
  if (after == allocations_.begin()) return false;
  --after;
  return memory < after->first + after->second.bytes;
}

void EmulatedDevice::Queue(std::function<void()> work) {
  if (recording_ != nullptr) {
    recording_->work.push_back(std::move(work));
  } else {
    queue_.push_back(std::move(work));
    ++num_queued_;
  }
}

void EmulatedDevice::DoNext() {
  queue_.front()();
  queue_.pop_front();
  ++num_done_;
}

bool EmulatedDevice::IsDone(uint64_t mark) {
  if (num_done_ < mark) DoNext();
  return num_done_ >= mark;
}

void EmulatedDevice::Wait(uint64_t mark) {
  while (num_done_ < mark) DoNext();
}

// Treats host memory like CUDA treats pageable memory: it has been read or written when the call returns.
void EmulatedDevice::Copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  num_copies_ += recording_ == nullptr;
  if (IsAllocated(from)) {
    Queue([to, from, bytes] { std::memcpy(to, from, bytes); });
  } else {
    const char* const data = static_cast<const char*>(from);
    Queue([to, kept = std::vector<char>(data, data + bytes)] { std::memcpy(to, kept.data(), kept.size()); });
  }
  if (!IsAllocated(to)) Synchronize();
}

void EmulatedDevice::CopyBatch(const CopyPiece* pieces, int num_pieces) {
  for (int i = 0; i < num_pieces; ++i) Copy(pieces[i].to, pieces[i].from, pieces[i].bytes);
}

const KernelTable* EmulatedDevice::FindKernels(DataType element, int head_dim, int block_size) const {
  return element == DataType::kBFloat16 ? TableForHeads<Bf16>(head_dim, block_size, is_sm90_)
                                        : TableForHeads<F16>(head_dim, block_size, is_sm90_);
}

void EmulatedDevice::Prepare(const KernelTable& kernels) {
  kernels.ForEach([this](const auto& kernel) { loaded_.insert(kernel.entry); });
}

void EmulatedDevice::Multiply(const MatmulArgs& args) {
  Queue([this, args] { MultiplyNow(args); });
}

void EmulatedDevice::MultiplyNow(const MatmulArgs& args) {
  const int64_t stride = args.y_stride == 0 ? args.num_columns : args.y_stride;
  const std::vector<float> x = Widened(args.x, size_t(args.num_rows) * args.depth, args.element);
  for (int column = 0; column < args.num_columns; ++column) {
    const std::vector<float> w = Widened(args.w + int64_t{column} * args.depth, args.depth, args.element);
    for (int row = 0; row < args.num_rows; ++row) {
      const int64_t at = row * stride + column;
      float sum = 0;
      for (int k = 0; k < args.depth; ++k) sum += x[int64_t{row} * args.depth + k] * w[k];
      StoreSum(sum, args.y, at, args.y_type, args.adds_to_y);
    }
  }
}

bool EmulatedDevice::MultiplyFp8(const Fp8MatmulArgs& args) {
  Queue([args] {
    for (int row = 0; row < args.num_rows; ++row) {
      for (int column = 0; column < args.num_columns; ++column) {
        const int block = args.has_blocks ? kScaledColumns : args.depth;
        float result = 0;
        for (int first = 0; first < args.depth; first += block) {
          float sum = 0;
          for (int k = first; k < first + block; ++k) {
            sum += Fp8ToFloat(args.x[int64_t{row} * args.depth + k]) *
                   Fp8ToFloat(args.w[int64_t{column} * args.depth + k]);
          }
          result += sum * Fp8Scale(args, row, column, first / block);
        }
        StoreSum(result, args.y, int64_t{row} * args.num_columns + column, args.y_type, args.adds_to_y);
      }
    }
  });
  return true;
}

bool EmulatedDevice::MultiplyInt8(const Int8MatmulArgs& args) {
  Queue([args] {
    for (int row = 0; row < args.num_rows; ++row) {
      for (int column = 0; column < args.num_columns; ++column) {
        int32_t sum = 0;
        for (int k = 0; k < args.depth; ++k) {
          sum += args.x[int64_t{row} * args.depth + k] * args.w[int64_t{column} * args.depth + k];
        }
        args.y[int64_t{row} * args.num_columns + column] = sum;
      }
    }
  });
  return true;
}

BackendStatus EmulatedDevice::JoinGroup(Collective* group) {
  group_ = group;
  return group->Status();
}

void EmulatedDevice::Exchange(std::function<void()> work) {
  Queue(std::move(work));
  if (recording_ != nullptr) {
    recording_->has_exchanges = true;
  } else {
    Synchronize();
  }
}

void EmulatedDevice::AllGather(const void* from, size_t bytes, void* to) {
  Exchange([group = group_, from, bytes, to] { group->AllGather(from, bytes, to); });
}

void EmulatedDevice::AllReduce(const float* part, size_t count, float* sums) {
  Exchange([group = group_, part, count, sums] {
    std::vector<float> all(count * group->size());
    if (!group->AllGather(part, count * sizeof(float), all.data())) return;
    for (size_t i = 0; i < count; ++i) {
      sums[i] = 0;
      for (int rank = 0; rank < group->size(); ++rank) sums[i] += all[rank * count + i];
    }
  });
}

void EmulatedDevice::BeginRecording() {
  ++num_recordings_;
  recording_ = std::make_unique<Recording>();
}

std::unique_ptr<Graph> EmulatedDevice::EndRecording() {
  return std::move(recording_);
}

void EmulatedDevice::Replay(const Graph& graph) {
  ++num_replays_;
  const auto& recording = static_cast<const Recording&>(graph);
  for (const std::function<void()>& work : recording.work) Queue(work);
  if (recording.has_exchanges) Synchronize();
}

void EmulatedDevice::LaunchKernel(const void* entry, int num_threads, size_t shared_bytes, const void* args,
                                  size_t args_bytes, int num_blocks) {
  if (loaded_.insert(entry).second && recording_ != nullptr) {
    std::fprintf(stderr, "the emulated GPU found a kernel that is recorded before it was prepared or launched\n");
    std::abort();
  }
  launched_.insert(entry);
  const char* const data = static_cast<const char*>(args);
  Queue([=, this, kept = std::vector<char>(data, data + args_bytes)] {
    LaunchNow(entry, num_threads, shared_bytes, kept.data(), num_blocks);
  });
}

void EmulatedDevice::LaunchNow(const void* entry, int num_threads, size_t shared_bytes, const void* args,
                               int num_blocks) {
  simt::LaunchConfig config;
  config.num_blocks = num_blocks;
  config.num_threads = num_threads;
  config.shared_bytes = shared_bytes;
  config.seed = ++num_launches_;
  config.landing = simt::CopyLanding(num_launches_ % 3);  // Launches use all kinds of landing in turn.
  for (const auto& [data, allocation] : allocations_) {
    if (allocation.bytes == 0) continue;
    config.buffers.push_back(simt::WritableBuffer("memory", const_cast<char*>(data), allocation.bytes).FromPriorGrid());
    config.buffers.back().has_read_only_parts = true;  // The caller decides which parts are written.
  }
  const auto run = reinterpret_cast<EntryFunction>(const_cast<void*>(entry));
  const simt::LaunchReport report = simt::Launch(config, [&] { run(args); });
  if (report.ok()) return;
  std::fprintf(stderr, "the emulated GPU found\n%s", report.ToString().c_str());
  std::abort();
}

}  // namespace quire::cuda
