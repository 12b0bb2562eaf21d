// SPDX-License-Identifier: Apache-2.0

#include "bench/gemm.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/clocks.h"
#include "bench/memory_reader.h"
#include "bench/register_probe.h"
#include "client/load/random.h"
#include "client/load/samples.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/half_float.h"

namespace quire {
namespace {

constexpr int kReads = 3;
// Numbers of FP8 are drawn from the positive ones below 2, so that no sum is infinite.
constexpr int kNumFp8 = 64;

// The values are small whole numbers, which are exact in every type.
std::vector<char> RandomValues(size_t count, DataType type) {
  BenchRandom random(1);
  std::vector<char> bytes(count * SizeOf(type));
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int>(random.Next() % 9) - 4);
    char* const at = bytes.data() + i * SizeOf(type);
    if (type == DataType::kFloat32) FromFloat(value, reinterpret_cast<float*>(at));
    if (type == DataType::kBFloat16) FromFloat(value, reinterpret_cast<BFloat16*>(at));
    if (type == DataType::kFloat16) FromFloat(value, reinterpret_cast<Float16*>(at));
  }
  return bytes;
}

template <typename Call>
double MedianSeconds(const GemmOptions& options, Call&& call) {
  call(0);
  Samples times;
  const double start = SecondsOf(options.num_threads);
  for (int i = 1; times.size() < 5 || SecondsOf(options.num_threads) - start < options.seconds; ++i) {
    const double begin = SecondsOf(options.num_threads);
    call(i);
    times.Add(SecondsOf(options.num_threads) - begin);
  }
  return times.Median();
}

double ReadBandwidth(MemoryReader* reader) {
  Samples reads;
  for (int i = 0; i < kReads; ++i) reads.Add(reader->ReadOnce());
  return reads.Median();
}

// A matrix of small numbers before it is packed.
class SourceMatrix {
 public:
  SourceMatrix(const GemmShape& shape, cpu::WeightFormat format) : shape_(shape), format_(format) {
    const size_t count = static_cast<size_t>(shape.rows) * shape.cols;
    if (cpu::IsInBlocks(format)) {
      MakeBlocks(count);
      return;
    }
    if (!IsQuantized()) {
      bytes_ = RandomValues(count, static_cast<DataType>(format));
      return;
    }
    BenchRandom random(1);
    const uint64_t num_values = format == cpu::WeightFormat::kFp8    ? kNumFp8
                                : format == cpu::WeightFormat::kInt8 ? 255
                                                                     : 16;
    for (size_t i = 0; i < count; ++i) bytes_.push_back(static_cast<char>(random.Next() % num_values));
    const int groups = format == cpu::WeightFormat::kInt8 ? 1 : (shape.cols + kMaxInt4Group - 1) / kMaxInt4Group;
    scales_.assign(static_cast<size_t>(shape.rows) * groups, 1.0f);
    zeros_.assign(scales_.size(), 8);
  }

  // Returns the bytes of the packed weights without their scales, except in blocks.
  double num_bytes() const {
    const auto bytes = static_cast<double>(bytes_.size());
    return !cpu::IsInBlocks(format_) && IsQuantized() && IsInt4(SourceFormat()) ? bytes / 2 : bytes;
  }

  // Returns null when there is not enough memory.
  std::unique_ptr<cpu::CpuPackedMatrix> Pack(const cpu::KernelTable& kernels, cpu::ThreadPool* pool) const {
    if (!IsQuantized()) {
      const MatrixView gate = {bytes_.data(), PartRows(), shape_.cols, static_cast<DataType>(format_)};
      MatrixView up = gate;
      up.data = bytes_.data() + bytes_.size() / 2;
      return shape_.is_gated ? cpu::CpuPackedMatrix::MakeGated(gate, up, pool)
                             : cpu::CpuPackedMatrix::Make(&gate, 1, pool);
    }
    if (cpu::IsInBlocks(format_)) {
      const BlockMatrixView gate = {.blocks = reinterpret_cast<const uint8_t*>(bytes_.data()),
                                    .rows = PartRows(),
                                    .cols = shape_.cols,
                                    .type = cpu::BlockTypeOf(format_)};
      BlockMatrixView up = gate;
      up.blocks += bytes_.size() / 2;
      return shape_.is_gated ? cpu::CpuPackedMatrix::MakeGated(gate, up, pool)
                             : cpu::CpuPackedMatrix::Make(&gate, 1, pool);
    }
    const auto* values = reinterpret_cast<const int8_t*>(bytes_.data());
    const QuantizedMatrixView gate = {.values = values,
                                      .scales = scales_.data(),
                                      .rows = PartRows(),
                                      .cols = shape_.cols,
                                      .format = SourceFormat(),
                                      .group = kMaxInt4Group,
                                      .zeros = zeros_.data()};
    QuantizedMatrixView up = gate;
    up.values += bytes_.size() / 2;
    const cpu::WeightFormat format = cpu::FormatFor(SourceFormat(), kernels);
    return shape_.is_gated ? cpu::CpuPackedMatrix::MakeGated(gate, up, format, pool)
                           : cpu::CpuPackedMatrix::Make(&gate, 1, format, pool);
  }

 private:
  bool IsQuantized() const { return format_ >= cpu::WeightFormat::kInt8; }
  QuantizedFormat SourceFormat() const {
    return format_ == cpu::WeightFormat::kInt8           ? QuantizedFormat::kInt8
           : format_ == cpu::WeightFormat::kInt4         ? QuantizedFormat::kInt4
           : format_ == cpu::WeightFormat::kFp8          ? QuantizedFormat::kFp8
           : format_ == cpu::WeightFormat::kInt4BFloat16 ? QuantizedFormat::kInt4BFloat16
                                                         : QuantizedFormat::kInt4Float32;
  }
  // Random numbers and small scales. The scales of the blocks are 1.
  void MakeBlocks(size_t count) {
    const BlockType type = cpu::BlockTypeOf(format_);
    const BlockShape block = ShapeOf(type);
    BenchRandom random(1);
    bytes_.resize(count / block.columns * block.bytes);
    for (char& byte : bytes_) byte = static_cast<char>(random.Next());
    for (size_t at = 0; at < bytes_.size(); at += block.bytes) {
      SetBlockScale(type, /*scale=*/1, /*minimum=*/1, reinterpret_cast<uint8_t*>(&bytes_[at]));
    }
  }
  int PartRows() const { return shape_.is_gated ? shape_.rows / 2 : shape_.rows; }

  const GemmShape shape_;
  const cpu::WeightFormat format_;
  std::vector<char> bytes_;
  std::vector<float> scales_;   // Whole numbers have these scales.
  std::vector<uint8_t> zeros_;  // Only int4 has zero points.
};

void Multiply(cpu::CpuLinear* linear, const GemmShape& shape, const cpu::CpuPackedMatrix& w, const void* x,
              int num_tokens, void* y) {
  if (shape.is_gated) {
    return linear->Run(GatedLinearArgs{
        .x = x, .w = &w, .bias = nullptr, .y = y, .y_type = linear->InputType(w), .num_tokens = num_tokens});
  }
  linear->Run(LinearArgs{.x = x, .w = &w, .bias = nullptr, .residual = nullptr, .y = y, .num_tokens = num_tokens});
}

// Products of int4 by bfloat16 have one of two formats.
bool HasProduct(const cpu::KernelTable& kernels, cpu::WeightFormat format) {
  if (format != cpu::WeightFormat::kInt4BFloat16) return true;
  return cpu::FormatFor(QuantizedFormat::kInt4BFloat16, kernels) != cpu::WeightFormat::kInt4Float32;
}

// Measures one shape with every number of tokens. The caller adds the bandwidth.
std::vector<GemmSpeed> MeasureShape(const GemmOptions& options, cpu::Isa isa, const GemmShape& shape) {
  cpu::ThreadPool pool(options.num_threads);
  cpu::CpuLinear linear(&cpu::KernelsFor(isa), &pool);
  RegisterProbe probe(isa, options.format, &pool);
  const SourceMatrix source(shape, options.format);
  const double bytes = source.num_bytes();
  std::vector<std::unique_ptr<cpu::CpuPackedMatrix>> matrices;
  const int count = static_cast<int>(static_cast<double>(options.matrix_bytes) / bytes) + 1;
  while (static_cast<int>(matrices.size()) < count) {
    matrices.push_back(source.Pack(cpu::KernelsFor(isa), &pool));
    if (matrices.back() == nullptr) return {};
  }
  std::vector<GemmSpeed> speeds;
  for (const int num_tokens : options.num_tokens) {
    const std::vector<char> x =
        RandomValues(static_cast<size_t>(num_tokens) * shape.cols, linear.InputType(*matrices.front()));
    std::vector<float> y(static_cast<size_t>(num_tokens) * shape.rows);
    const double before = probe.MeasureGflops();
    const double median = MedianSeconds(
        options, [&](int i) { Multiply(&linear, shape, *matrices[i % count], x.data(), num_tokens, y.data()); });
    GemmSpeed speed{};
    speed.isa = isa;
    speed.shape = shape;
    speed.num_tokens = num_tokens;
    speed.median_us = 1e6 * median;
    speed.gflops = 2e-9 * num_tokens * shape.rows * shape.cols / median;
    speed.weight_gbytes = 1e-9 * bytes / median;
    speed.register_gflops = (before + probe.MeasureGflops()) / 2;
    speeds.push_back(speed);
  }
  return speeds;
}

}  // namespace

absl::StatusOr<std::vector<GemmShape>> GemmShapes(const std::string& model) {
  if (model == "m500") {
    return std::vector<GemmShape>{{"qkv", 2304, 1536},
                                  {"attention out", 1536, 1536},
                                  {"gate and up", 8192, 1536, true},
                                  {"down", 1536, 4096},
                                  {"logits", 32000, 1536}};
  }
  if (model == "s15m") {
    return std::vector<GemmShape>{{"qkv", 864, 288},
                                  {"attention out", 288, 288},
                                  {"gate and up", 1536, 288, true},
                                  {"down", 288, 768},
                                  {"logits", 32000, 288}};
  }
  return absl::InvalidArgumentError(absl::StrCat("--model is '", model, "', it must be one of m500, s15m"));
}

absl::Status MeasureGemm(const GemmOptions& options, const std::vector<cpu::Isa>& isas,
                         const std::vector<GemmShape>& shapes, absl::FunctionRef<void(const GemmSpeed&)> report) {
  GemmOptions all = options;
  if (all.num_threads == 0) all.num_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<MemoryReader> reader,
                         MemoryReader::Create(all.num_threads, 2 * static_cast<size_t>(all.matrix_bytes)));
  for (const cpu::Isa isa : isas) {
    if (!HasProduct(cpu::KernelsFor(isa), options.format)) continue;
    for (const GemmShape& shape : shapes) {
      const double before = ReadBandwidth(reader.get());
      std::vector<GemmSpeed> speeds = MeasureShape(all, isa, shape);
      if (speeds.empty()) return absl::ResourceExhaustedError("not enough memory");
      const double bandwidth = (before + ReadBandwidth(reader.get())) / 2;
      for (GemmSpeed& speed : speeds) {
        speed.read_gbytes = bandwidth;
        const double register_share = speed.register_gflops > 0 ? speed.gflops / speed.register_gflops : 0;
        speed.limit_us = speed.median_us * std::max(speed.weight_gbytes / bandwidth, register_share);
        report(speed);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
