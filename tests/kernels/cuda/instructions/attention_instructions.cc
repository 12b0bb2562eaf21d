// SPDX-License-Identifier: Apache-2.0

// Counts what the attention kernels execute for some steps, with the plan of the server, on a virtual GPU.
//   attention_instructions BOUNDS PTX...
// Prints a table and fails when a number exceeds its bound in the file BOUNDS. With QUIRE_UPDATE_GOLDEN=1 it writes
// that file, with bounds that are 5 % above the numbers.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/attention.h"
#include "tests/kernels/attention_steps.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/instructions/counting_device.h"

namespace quire::cuda {
namespace {

constexpr double kSlack = 1.05;

struct Step {
  const char* name;
  Shape shape;
  int num_sequences;
  int context_len;
  int num_queries;       // The last tokens of every sequence.
  bool is_sm90 = false;  // Whether there are the kernels that only compute capability 9.0 has.
};

// One kernel in one step, or the bounds of these numbers.
struct Numbers {
  double instructions;        // Millions of warp instructions.
  double sectors;             // Sectors that are accessed, per sector of K and V.
  double replays_per_access;  // Of shared memory.
};

// By the name of the step and of the kernel.
using NumbersByName = std::map<std::pair<std::string, std::string>, Numbers>;

std::vector<Step> Steps() {
  const DataType type = DataType::kBFloat16;
  return {
      {"decode-8x1024-heads-of-128", {32, 8, 128, 16, type}, 8, 1024, 1},
      {"decode-8x1024-heads-of-64", {32, 8, 64, 16, type}, 8, 1024, 1},
      {"decode-8x1024-groups-of-1", {8, 8, 128, 16, type}, 8, 1024, 1},
      {"decode-8x1024-groups-of-8", {64, 8, 128, 16, type}, 8, 1024, 1},
      {"decode-8x1024-blocks-of-1", {32, 8, 128, 1, type}, 8, 1024, 1},
      {"decode-8x1024-blocks-of-64", {32, 8, 128, 64, type}, 8, 1024, 1},
      {"decode-1x8448-heads-of-128", {32, 8, 128, 16, type}, 1, 8448, 1},  // 33 partial results of each row.
      {"prefill-1024-heads-of-128", {32, 8, 128, 16, type}, 1, 1024, 1024},
      {"prefill-1024-heads-of-64", {32, 8, 64, 16, type}, 1, 1024, 1024},
      {"prefill-1024-blocks-of-1", {32, 8, 128, 1, type}, 1, 1024, 1024},
      {"prefill-1024-sm90-heads-of-128", {32, 8, 128, 16, type}, 1, 1024, 1024, true},
      {"prefill-1024-sm90-heads-of-64", {32, 8, 64, 16, type}, 1, 1024, 1024, true},
  };
}

// Normally distributed bfloat16 numbers.
std::vector<uint16_t> RandomElements(size_t count) {
  Random random(1);
  std::vector<uint16_t> elements(count);
  for (uint16_t& element : elements) element = ToBFloat16(random.Normal()).bits;
  return elements;
}

void Count(CountingDevice* device, const Step& step, NumbersByName* all) {
  const Shape& shape = step.shape;
  device->set_is_sm90(step.is_sm90);
  const KvLayout layout = LayoutOf(shape);
  const int num_blocks = step.num_sequences * (step.context_len / shape.block_size);
  Random random(2);
  PagedPool places(layout, num_blocks, &random);
  PagedBatch batch;
  for (int i = 0; i < step.num_sequences; ++i) {
    batch.Add(places.MakeTable(step.context_len), step.context_len - step.num_queries, step.context_len,
              shape.block_size);
  }
  const BatchView view = batch.View();
  const size_t q_elements = size_t(view.num_tokens) * shape.num_heads * shape.head_dim;
  DeviceArray<uint16_t> pool(device, RandomElements(layout.block_elements() * num_blocks)),
      q(device, RandomElements(q_elements)), out(device, q_elements);
  const auto upload = [&](const auto* values, int count) {
    using T = std::remove_cvref_t<decltype(*values)>;
    return DeviceArray<T>(device, std::vector<T>(values, values + count));
  };
  const auto positions = upload(view.positions, view.num_tokens);
  const auto table_starts = upload(view.table_starts, view.num_sequences + 1);
  const auto block_tables = upload(view.block_tables, view.table_starts[view.num_sequences]);
  BatchView on_device = view;
  on_device.positions = positions.data();
  on_device.table_starts = table_starts.data();
  on_device.block_tables = block_tables.data();

  CudaAttention attention(device, /*exact=*/false);
  attention.BeginStep(view);
  quire::AttentionArgs args{};
  args.batch = &on_device;
  args.q = q.data();
  args.q_stride = shape.num_heads * shape.head_dim;
  args.out = out.data();
  args.num_heads = shape.num_heads;
  args.scale = 1 / std::sqrt(float(shape.head_dim));
  args.layout = &layout;
  args.kv_pool = pool.data();
  args.out_type = shape.type;
  attention.Run(args, *device->FindKernels(shape.type, shape.head_dim, shape.block_size));
  const double kv_sectors = double(layout.block_bytes()) * num_blocks / 32;
  for (const auto& [kernel, counts] : device->TakeCounts()) {
    (*all)[{step.name, kernel}] = {double(counts.instructions) / 1e6, double(counts.sectors) / kv_sectors,
                                   double(counts.shared_replays) / std::max(1.0, double(counts.shared_accesses))};
  }
}

void Print(std::FILE* file, const NumbersByName& all, double factor) {
  for (const auto& [names, numbers] : all) {
    std::fprintf(file, "%-30s %-22s %9.3f %9.3f %9.3f\n", names.first.c_str(), names.second.c_str(),
                 factor * numbers.instructions, factor * numbers.sectors, factor * numbers.replays_per_access);
  }
}

bool WriteBounds(const std::string& path, const NumbersByName& all) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(
      file,
      "# Bounds on what the attention kernels execute; made by attention_instructions with "
      "QUIRE_UPDATE_GOLDEN=1.\n# Millions of warp instructions of PTX; sectors of global memory per sector of K "
      "and V; replays per access\n# to shared memory.\n");
  Print(file, all, kSlack);
  return std::fclose(file) == 0;
}

NumbersByName ReadBounds(const std::string& path) {
  NumbersByName bounds;
  std::ifstream file(path);
  for (std::string step, kernel; file >> step;) {
    if (step[0] == '#') {
      std::getline(file, kernel);
      continue;
    }
    Numbers numbers{};
    file >> kernel >> numbers.instructions >> numbers.sectors >> numbers.replays_per_access;
    bounds[{step, kernel}] = numbers;
  }
  return bounds;
}

// Whether the numbers belong to the same steps and kernels as the bounds, and none is larger.
bool AreWithin(const NumbersByName& all, const NumbersByName& bounds) {
  bool are_within = true;
  const auto fail = [&](const std::pair<std::string, std::string>& names, const char* what) {
    std::printf("%s, %s: %s\n", names.first.c_str(), names.second.c_str(), what);
    are_within = false;
  };
  for (const auto& [names, numbers] : all) {
    const auto found = bounds.find(names);
    if (found == bounds.end()) {
      fail(names, "there is no bound");
      continue;
    }
    if (numbers.instructions > found->second.instructions) fail(names, "too many instructions");
    if (numbers.sectors > found->second.sectors) fail(names, "too many sectors");
    // The file has three decimals.
    if (numbers.replays_per_access > found->second.replays_per_access + 0.001) fail(names, "too many replays");
  }
  for (const auto& [names, numbers] : bounds) {
    if (!all.contains(names)) fail(names, "it was not launched");
  }
  return are_within;
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: attention_instructions BOUNDS PTX...\n");
    return 2;
  }
  const std::string path = argv[1];
  CountingDevice device({argv + 2, argv + argc});
  NumbersByName all;
  for (const Step& step : Steps()) Count(&device, step, &all);
  std::printf("%-30s %-22s %9s %9s %9s\n", "step", "kernel", "million", "sectors", "replays");
  Print(stdout, all, 1);
  if (std::getenv("QUIRE_UPDATE_GOLDEN") != nullptr && !WriteBounds(path, all)) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    return 1;
  }
  return AreWithin(all, ReadBounds(path)) ? 0 : 1;
}

}  // namespace
}  // namespace quire::cuda

int main(int argc, char** argv) {
  return quire::cuda::Main(argc, argv);
}
