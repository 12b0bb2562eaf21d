// SPDX-License-Identifier: Apache-2.0

// Measures the speed of the kernels on a GPU, compared with a copy of its memory, and products by quantized weights
// compared with cuBLAS products by 16-bit weights. Attention runs the plans of the worker, and decodes also have the
// grids that the worker records.
//   gpu_speed [--only=REGEX] [--json=FILE] [--tuning-cache=FILE] [--exact] [--overlap]
// With --only, measures the rows whose "GROUP, NAME" contains a match, and the copy with which all are compared. The
// file of --json is written after every row. Exits with 77 when there is no GPU.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu_report.h"
#include "bench/quantized_speed.h"
#include "bench/random_array.h"
#include "kernels/cuda/copy_blocks.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_append.h"
#include "kernels/cuda/row_kernels.h"
#include "tests/kernels/cuda/device_attention.h"
#include "tests/kernels/cuda/worker_attention.h"

namespace quire::cuda {
namespace {

constexpr int kNoGpu = 77;
constexpr DataType kType = DataType::kBFloat16;
constexpr size_t kElementBytes = 2;

class Measurement {
 public:
  // Measures only rows that match `only`, and writes them to the file `json` unless it is empty.
  Measurement(CudaDevice* device, bool exact, const std::regex& only, const std::string& json)
      : device_(device), exact_(exact), only_(only), timer_(device), report_(*device, json) {}

  void Copies();
  void Decode(const Shape& shape, int num_sequences, int context_len);
  void Prefill(const Shape& shape, int num_cached, int num_queries);
  void Rows(int num_rows);
  void Multiplications();
  bool is_written() const { return report_.is_written(); }

 private:
  void Multiplications(const ModelMatrix& m, DataType y_type, const std::vector<int>& row_counts);
  bool Wants(const std::string& group, const std::string& name) const {
    return std::regex_search(group + ", " + name, only_);
  }
  // Returns whether there is enough memory, with some to spare. Reports it when there is not.
  bool HasRoom(const std::string& group, const std::string& name, double bytes);
  void Attention(const Shape& shape, const std::string& group, const std::string& name, int num_sequences,
                 int num_cached, int num_queries);

  CudaDevice* const device_;
  const bool exact_;
  const std::regex only_;
  GpuTimer timer_;
  GpuReport report_;
};

bool Measurement::HasRoom(const std::string& group, const std::string& name, double bytes) {
  if (1.1 * bytes < double(device_->FreeBytes())) return true;
  report_.Skip(group, name, "it needs " + std::to_string(int64_t(bytes / (1 << 20))) + " MiB");
  return false;
}

void Measurement::Copies() {
  constexpr size_t kBytes = size_t{1} << 30;
  DeviceArray<char> from(device_, kBytes), to(device_, kBytes);
  const GpuTime copy = timer_.TimeWithoutRecording([&](int) { device_->Copy(to.data(), from.data(), kBytes); });
  report_.Add({"copy", "device memory, 1 GiB, read and written", copy, 2.0 * kBytes, 0});

  const std::string cow_name = "128 blocks of 64 KiB in 32 layers";
  const std::string out_name = "4096 blocks of 64 KiB to the host", in_name = "4096 blocks of 64 KiB from the host";
  if (!Wants("copy", cow_name) && !Wants("copy", out_name) && !Wants("copy", in_name)) return;
  // Copy-on-write: blocks of 16 tokens, 8 heads of 128, in 32 layers.
  constexpr int kLayers = 32, kCopies = 128, kBlocks = 2 * kCopies;
  constexpr int64_t kBlockBytes = 2 * 16 * 8 * 128 * 2;
  static_assert(kLayers * kBlocks * kBlockBytes <= int64_t{kBytes});
  std::vector<char*> pools;
  for (int layer = 0; layer < kLayers; ++layer) pools.push_back(from.data() + layer * kBlocks * kBlockBytes);
  std::vector<uint32_t> sources, destinations;
  for (uint32_t i = 0; i < kCopies; ++i) {
    sources.push_back(2 * i);
    destinations.push_back(2 * i + 1);
  }
  DeviceArray<char*> pool_array(device_, pools);
  DeviceArray<uint32_t> source_array(device_, sources), destination_array(device_, destinations);
  const Kernel<CopyBlocksArgs>& kernel = device_->FindKernels(kType, 128, 16)->copy_blocks;
  const GpuTime cow = timer_.Time([&](int) {
    device_->Launch(
        kernel,
        CopyBlocksArgs{source_array.data(), destination_array.data(), kCopies, kLayers, kBlockBytes, pool_array.data()},
        kCopies * kLayers);
  });
  report_.Add({"copy", cow_name, cow, 2.0 * kCopies * kLayers * kBlockBytes, 0});

  // Swapping: the same blocks are copied to the host and back.
  const size_t swap_bytes = size_t{kCopies} * kLayers * kBlockBytes;
  char* const host = static_cast<char*>(device_->AllocateHost(swap_bytes));
  if (host == nullptr) return report_.Skip("copy", "swapping", "no pinned memory");
  std::vector<CopyPiece> out, in;
  for (int i = 0; i < kCopies * kLayers; ++i) {
    char* const block = from.data() + 2 * i * kBlockBytes;
    out.push_back({host + i * kBlockBytes, block, size_t(kBlockBytes)});
    in.push_back({block, host + i * kBlockBytes, size_t(kBlockBytes)});
  }
  const GpuTime out_time = timer_.TimeWithoutRecording([&](int) { device_->CopyBatch(out.data(), int(out.size())); });
  const GpuTime in_time = timer_.TimeWithoutRecording([&](int) { device_->CopyBatch(in.data(), int(in.size())); });
  report_.Add({"copy", out_name, out_time, double(swap_bytes), 0});
  report_.Add({"copy", in_name, in_time, double(swap_bytes), 0});
  device_->FreeHost(host);
}

std::string HeadsOf(const Shape& shape) {
  return std::to_string(shape.num_heads) + "/" + std::to_string(shape.num_kv_heads) + " heads of " +
         std::to_string(shape.head_dim) + ", blocks of " + std::to_string(shape.block_size) +
         (shape.int8_kv ? ", K and V in int8" : "");
}

void Measurement::Attention(const Shape& shape, const std::string& group, const std::string& name, int num_sequences,
                            int num_cached, int num_queries) {
  if (!Wants(group, name)) return;
  const int context_len = num_cached + num_queries;
  const int blocks_per_sequence = (context_len + shape.block_size - 1) / shape.block_size;
  const int num_blocks = num_sequences * blocks_per_sequence;
  const size_t pool_bytes = LayoutOf(shape).block_bytes() * num_blocks;
  const int num_pools = timer_.CopiesToFillCaches(pool_bytes);
  const int row_size = shape.num_heads * shape.head_dim;
  const size_t q_elements = size_t(num_sequences) * num_queries * row_size;
  const double bytes_needed = double(num_pools) * pool_bytes + 2.0 * kElementBytes * q_elements;
  if (FindKernelsFor(*device_, shape) == nullptr) {
    return report_.Skip(group, name, "no kernels for it on this device");
  }
  if (!HasRoom(group, name, bytes_needed)) return;

  Random random(2);
  std::vector<uint32_t> blocks(num_blocks);
  for (int i = 0; i < num_blocks; ++i) blocks[i] = i;
  random.Shuffle(&blocks);
  PagedBatch batch;
  for (int i = 0; i < num_sequences; ++i) {
    const auto first = blocks.begin() + int64_t{i} * blocks_per_sequence;
    batch.Add({first, first + blocks_per_sequence}, num_cached, context_len, shape.block_size);
  }
  // The bits are also random as numbers of 8 bits and scales, and none of them is a NaN.
  const RandomArrays pools(device_, num_pools, pool_bytes / kElementBytes);
  const RandomArray q(device_, q_elements);
  DeviceArray<uint16_t> out(device_, q_elements);
  WorkerAttention attention(device_, shape, batch.View(), exact_, /*is_recorded=*/num_queries == 1);
  const GpuTime time = timer_.Time([&](int i) { attention.Launch(q.data(), row_size, pools[i], out.data()); });
  double visible = 0;  // Number of pairs of a query and a token that it sees.
  for (int i = 0; i < num_queries; ++i) visible += num_cached + i + 1;
  const double token_bytes = double(LayoutOf(shape).block_bytes()) / shape.block_size;
  const double kv_bytes = token_bytes * context_len * num_sequences;
  report_.Add(
      {group, name, time, kv_bytes + 2.0 * kElementBytes * double(q_elements), 4 * visible * row_size * num_sequences});
}

void Measurement::Decode(const Shape& shape, int num_sequences, int context_len) {
  Attention(shape, "decode attention",
            std::to_string(num_sequences) + " at " + std::to_string(context_len) + ", " + HeadsOf(shape), num_sequences,
            context_len - 1, 1);
}

void Measurement::Prefill(const Shape& shape, int num_cached, int num_queries) {
  Attention(shape, "prefill attention",
            std::to_string(num_queries) + " after " + std::to_string(num_cached) + ", " + HeadsOf(shape), 1, num_cached,
            num_queries);
}

// The kernels between multiplications, in the sizes of a model with 8 B parameters.
void Measurement::Rows(int num_rows) {
  constexpr int kDim = 4096, kHidden = 14336, kHeads = 32, kKvHeads = 8, kHeadDim = 128;
  constexpr int kQkv = (kHeads + 2 * kKvHeads) * kHeadDim;
  const std::string group = "norms and the like", rows = std::to_string(num_rows) + " rows";
  const KernelTable& kernels = *device_->FindKernels(kType, kHeadDim, 16);
  const size_t dim_elements = size_t(num_rows) * kDim, hidden_elements = size_t(num_rows) * kHidden;
  const auto copies = [&](size_t elements) { return timer_.CopiesToFillCaches(elements * kElementBytes); };
  constexpr double kMostBytes = 1.5e9;  // Size of the gated rows if there are 8192 of them.
  const std::string norm_name = "RMS norm, " + rows + " of 4096", gather_name = "gather, " + rows + " of 4096";
  const std::string silu_name = "SiLU times, " + rows + " of 14336", rope_name = "rotation and K/V, " + rows;
  if (!Wants(group, norm_name) && !Wants(group, gather_name) && !Wants(group, silu_name) && !Wants(group, rope_name)) {
    return;
  }
  if (!HasRoom(group, rows, kMostBytes)) return;
  {
    const RandomArrays x(device_, copies(dim_elements), dim_elements);
    DeviceArray<uint16_t> y(device_, dim_elements);
    DeviceArray<float> weight(device_, std::vector<float>(kDim, 1));
    const GpuTime norm = timer_.Time([&](int i) {
      device_->Launch(kernels.rms_norm, RmsNormKernelArgs{x[i], weight.data(), y.data(), num_rows, kDim, 1e-5f},
                      num_rows);
    });
    report_.Add({group, norm_name, norm, 2.0 * kElementBytes * double(dim_elements), 0});
    std::vector<int32_t> all_rows(num_rows);
    for (int i = 0; i < num_rows; ++i) all_rows[i] = num_rows - 1 - i;
    DeviceArray<int32_t> row_array(device_, all_rows);
    const GpuTime gather = timer_.Time([&](int i) {
      device_->Launch(kernels.gather_rows, GatherRowsArgs{x[i], row_array.data(), y.data(), num_rows, kDim},
                      (num_rows + 7) / 8);
    });
    report_.Add({group, gather_name, gather, 2.0 * kElementBytes * double(dim_elements), 0});
  }
  {
    const RandomArrays x(device_, copies(2 * hidden_elements), 2 * hidden_elements);
    DeviceArray<uint16_t> y(device_, hidden_elements);
    const GpuTime silu = timer_.Time([&](int i) {
      device_->Launch(kernels.silu_mul, GatedArgs{x[i], y.data(), num_rows, kHidden},
                      int(std::min<size_t>(hidden_elements / 8 / 256 + 1, 16 * device_->num_multiprocessors())));
    });
    report_.Add({group, silu_name, silu, 3.0 * kElementBytes * double(hidden_elements), 0});
  }
  {
    const size_t qkv_elements = size_t(num_rows) * kQkv;
    const RandomArrays qkv(device_, copies(qkv_elements), qkv_elements);
    const size_t kv_elements = size_t{2} * kKvHeads * kHeadDim * ((num_rows + 15) / 16 * 16);
    DeviceArray<uint16_t> pool(device_, kv_elements);
    DeviceArray<float> table(device_, std::vector<float>(size_t(num_rows) * kHeadDim, 0.7f));
    std::vector<int32_t> positions(num_rows);
    std::vector<int64_t> slots(num_rows);
    for (int i = 0; i < num_rows; ++i) slots[i] = positions[i] = i;
    DeviceArray<int32_t> position_array(device_, positions);
    DeviceArray<int64_t> slot_array(device_, slots);
    RopeAppendKernelArgs args{};
    args.positions = position_array.data();
    args.slots = slot_array.data();
    args.rotary_table = table.data();
    args.kv_pool = reinterpret_cast<char*>(pool.data());
    args.num_tokens = num_rows;
    args.num_heads = kHeads;
    args.num_kv_heads = kKvHeads;
    args.block_size = 16;
    args.rotary_dim = kHeadDim;
    const GpuTime rope = timer_.Time([&](int i) {
      args.qkv = qkv[i];
      device_->Launch(kernels.rope_append, args, (num_rows * (kHeads + 2 * kKvHeads) + 7) / 8);
    });
    report_.Add({group, rope_name, rope, 2.0 * kElementBytes * double(qkv_elements), 0});
  }
}

// Measures products by a matrix of 16-bit weights with these numbers of rows.
void Measurement::Multiplications(const ModelMatrix& m, DataType y_type, const std::vector<int>& row_counts) {
  const size_t w_elements = size_t(m.num_columns) * m.depth;
  const int copies = timer_.CopiesToFillCaches(w_elements * kElementBytes);
  const double y_bytes = double(row_counts.back()) * m.num_columns * double(SizeOf(y_type));
  const double x_bytes = double(kElementBytes) * row_counts.back() * m.depth;
  const auto is_wanted = [&](int num_rows) { return Wants(kProductGroup, m.ProductName(num_rows)); };
  // Tuning needs another x and y.
  if (std::none_of(row_counts.begin(), row_counts.end(), is_wanted) ||
      !HasRoom(kProductGroup, m.name, double(kElementBytes) * copies * double(w_elements) + 2 * (x_bytes + y_bytes))) {
    return;
  }
  const RandomArrays w(device_, copies, w_elements);
  for (const int num_rows : row_counts) {
    if (!is_wanted(num_rows)) continue;
    const RandomArray x(device_, size_t(num_rows) * m.depth);
    DeviceArray<char> y(device_, size_t(num_rows) * m.num_columns * SizeOf(y_type));
    const GpuTime time = timer_.Time([&](int i) {
      device_->Multiply({x.data(), w[i], y.data(), num_rows, m.num_columns, m.depth, kType, y_type, false});
    });
    report_.Add({kProductGroup, m.ProductName(num_rows), time,
                 kElementBytes * (double(w_elements) + double(num_rows) * m.depth) + double(y.size()),
                 2.0 * num_rows * double(w_elements)});
  }
}

void Measurement::Multiplications() {
  std::vector<int> row_counts(std::begin(kProductRows), std::end(kProductRows));
  row_counts.push_back(8192);
  for (const ModelMatrix& m : kModelMatrices) Multiplications(m, kType, row_counts);
  Multiplications({"logits", 128256, 4096}, DataType::kFloat32, {1, 8, 16, 64, 256});
  MeasureQuantizedProducts(
      device_, exact_, [&](const std::string& group, const std::string& name) { return Wants(group, name); }, &timer_,
      &report_);
}

int Main(int argc, char** argv) {
  DeviceOptions options;
  std::string json;
  std::regex only("");  // It matches everywhere.
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--json=")) {
      json = argument.substr(7);
    } else if (argument.starts_with("--tuning-cache=")) {
      options.tuning_cache = argument.substr(15);
    } else if (argument.starts_with("--only=")) {
      try {
        only = std::regex(argument.substr(7), std::regex::extended);
      } catch (const std::regex_error& error) {
        std::fprintf(stderr, "gpu_speed: %s is no regular expression: %s\n", argument.c_str(), error.what());
        return 2;
      }
    } else if (argument == "--exact") {
      options.exact = true;
    } else if (argument == "--overlap") {
      options.overlaps_launches = true;
    } else {
      std::fprintf(stderr,
                   "usage: gpu_speed [--only=REGEX] [--json=FILE] [--tuning-cache=FILE] [--exact] [--overlap]\n");
      return 2;
    }
  }
  std::string reason;
  const std::unique_ptr<CudaDevice> device = CudaDevice::Create(options, &reason);
  if (device == nullptr) {
    std::fprintf(stderr, "no GPU here: %s\n", reason.c_str());
    return kNoGpu;
  }
  Measurement measurement(device.get(), options.exact, only, json);
  measurement.Copies();
  const Shape llama = {32, 8, 128, 16, kType};
  for (const auto& [num_sequences, context_len] :
       std::vector<std::pair<int, int>>{{64, 4096}, {64, 1024}, {16, 8192}, {1, 4096}, {1, 131072}, {256, 512}}) {
    measurement.Decode(llama, num_sequences, context_len);
  }
  measurement.Decode({64, 8, 128, 16, kType}, 64, 4096);   // A group of 8.
  measurement.Decode({32, 32, 128, 16, kType}, 64, 1024);  // No groups.
  measurement.Decode({32, 8, 64, 16, kType}, 64, 4096);
  measurement.Decode({32, 8, 128, 64, kType}, 64, 4096);  // Larger blocks.
  measurement.Decode({32, 8, 128, 1, kType}, 16, 4096);   // The smallest.
  for (const auto& [num_cached, num_queries] :
       std::vector<std::pair<int, int>>{{0, 8192}, {0, 1024}, {6144, 2048}, {32256, 512}}) {
    measurement.Prefill(llama, num_cached, num_queries);
  }
  measurement.Prefill({32, 8, 64, 16, kType}, 0, 8192);
  Shape int8_kv = llama;
  int8_kv.int8_kv = true;
  for (const auto& [num_sequences, context_len] :
       std::vector<std::pair<int, int>>{{64, 4096}, {64, 1024}, {1, 131072}}) {
    measurement.Decode(int8_kv, num_sequences, context_len);
  }
  measurement.Prefill(int8_kv, 0, 8192);
  for (const int num_rows : {1, 64, 8192}) measurement.Rows(num_rows);
  measurement.Multiplications();
  if (!measurement.is_written()) {
    std::fprintf(stderr, "cannot write %s\n", json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace quire::cuda

int main(int argc, char** argv) {
  return quire::cuda::Main(argc, argv);
}
