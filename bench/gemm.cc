// SPDX-License-Identifier: Apache-2.0

#include "bench/gemm.h"

#include <algorithm>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/clocks.h"
#include "bench/memory_reader.h"
#include "client/load/random.h"
#include "client/load/samples.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/packed_matrix.h"
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

  // Returns the bytes of the packed weights without their scales.
  double num_bytes() const {
    const auto bytes = static_cast<double>(bytes_.size());
    return format_ == cpu::WeightFormat::kInt4 || format_ == cpu::WeightFormat::kInt4Float32 ? bytes / 2 : bytes;
  }

  // Null when there is not enough memory.
  std::unique_ptr<PackedMatrix> Pack(Backend* backend) const {
    if (!IsQuantized()) {
      const MatrixView gate = {bytes_.data(), PartRows(), shape_.cols, static_cast<DataType>(format_)};
      MatrixView up = gate;
      up.data = bytes_.data() + bytes_.size() / 2;
      return shape_.is_gated ? backend->PackGated(gate, up) : backend->Pack(&gate, 1);
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
    return shape_.is_gated ? backend->PackGatedQuantized(gate, up) : backend->PackQuantized(&gate, 1);
  }

 private:
  bool IsQuantized() const { return format_ >= cpu::WeightFormat::kInt8; }
  QuantizedFormat SourceFormat() const {
    return format_ == cpu::WeightFormat::kInt8   ? QuantizedFormat::kInt8
           : format_ == cpu::WeightFormat::kInt4 ? QuantizedFormat::kInt4
           : format_ == cpu::WeightFormat::kFp8  ? QuantizedFormat::kFp8
                                                 : QuantizedFormat::kInt4Float32;
  }
  int PartRows() const { return shape_.is_gated ? shape_.rows / 2 : shape_.rows; }

  const GemmShape shape_;
  const cpu::WeightFormat format_;
  std::vector<char> bytes_;
  std::vector<float> scales_;   // Of whole numbers.
  std::vector<uint8_t> zeros_;  // Of int4.
};

void Multiply(Backend* backend, const GemmShape& shape, const PackedMatrix& w, const void* x, int num_tokens, void* y) {
  if (shape.is_gated) {
    return backend->GatedLinear(
        {.x = x, .w = &w, .bias = nullptr, .y = y, .y_type = backend->InputType(w), .num_tokens = num_tokens});
  }
  backend->Linear({.x = x, .w = &w, .bias = nullptr, .residual = nullptr, .y = y, .num_tokens = num_tokens});
}

// Measures the GFLOP/s of the kernel alone on all threads at once. All rows of x are the same row, and so are those of
// y, so that they stay in the first-level cache. A panel stays in the second-level cache.
double PeakGflops(const GemmOptions& options, cpu::Isa isa) {
  constexpr int kCols = 2048, kRows = 768, kCalls = 4;
  const cpu::KernelTable& kernels = cpu::KernelsFor(isa);
  const int format = static_cast<int>(options.format);
  const int num_threads = options.num_threads;
  const auto backend = cpu::MakeCpuBackend(1, isa);
  const auto packed = SourceMatrix({"", cpu::kPanelColumns, kCols}, options.format).Pack(backend.get());
  const auto& w = static_cast<const cpu::CpuPackedMatrix&>(*packed);
  std::vector<char> x = RandomValues(kCols, kernels.linear_input[format]);
  if (options.format == cpu::WeightFormat::kInt8) {
    const std::vector<char> floats = x;
    x.resize(cpu::kQuantizedHeaderBytes + kCols * sizeof(int16_t));
    kernels.quantize_row(reinterpret_cast<const float*>(floats.data()), kCols, x.data());
  }
  constexpr int kHeaderBytes = kCols / kMaxInt4Group * static_cast<int>(sizeof(cpu::GroupHeader));
  if (options.format == cpu::WeightFormat::kInt4) {
    const std::vector<char> floats = x;
    x.resize(kHeaderBytes + kCols);
    kernels.quantize_groups({.x = reinterpret_cast<const float*>(floats.data()),
                             .cols = kCols,
                             .group = kMaxInt4Group,
                             .headers = reinterpret_cast<cpu::GroupHeader*>(x.data()),
                             .values = reinterpret_cast<int8_t*>(x.data() + kHeaderBytes)});
  }
  std::vector<cpu::Memory> scratch(num_threads);
  if (w.group() > 0) {
    for (cpu::Memory& memory : scratch) memory = cpu::Memory(cpu::LinearScratchBytes(w.num_groups(), w.group()));
  }
  cpu::ThreadPool pool(num_threads);
  const double median = MedianSeconds(options, [&](int) {
    pool.ForEach(num_threads * kCalls, [&](int, int thread) {
      float y[cpu::kPanelColumns];
      cpu::LinearTask task{};
      task.x = x.data();
      task.panels = w.panel(0);
      task.scratch = scratch[thread].data();
      task.y = y;
      task.y_type = DataType::kFloat32;
      task.panel_elements = w.panel_elements();
      task.group = w.group();
      task.x_header_bytes = kHeaderBytes;
      task.num_rows = kRows;
      task.cols = kCols;
      task.num_panels = 1;
      task.num_columns = cpu::kPanelColumns;
      kernels.linear[format](task);
    });
  });
  return 2e-9 * kCols * kRows * cpu::kPanelColumns * num_threads * kCalls / median;
}

// Measures one shape with every number of tokens. The caller adds the bandwidth.
std::vector<GemmSpeed> MeasureShape(const GemmOptions& options, cpu::Isa isa, const GemmShape& shape) {
  const auto backend = cpu::MakeCpuBackend(options.num_threads, isa);
  const SourceMatrix source(shape, options.format);
  const double bytes = source.num_bytes();
  std::vector<std::unique_ptr<PackedMatrix>> matrices;
  const int count = static_cast<int>(static_cast<double>(options.matrix_bytes) / bytes) + 1;
  while (static_cast<int>(matrices.size()) < count) {
    matrices.push_back(source.Pack(backend.get()));
    if (matrices.back() == nullptr) return {};
  }
  std::vector<GemmSpeed> speeds;
  for (const int num_tokens : options.num_tokens) {
    const std::vector<char> x =
        RandomValues(static_cast<size_t>(num_tokens) * shape.cols, backend->InputType(*matrices.front()));
    std::vector<float> y(static_cast<size_t>(num_tokens) * shape.rows);
    const double median = MedianSeconds(
        options, [&](int i) { Multiply(backend.get(), shape, *matrices[i % count], x.data(), num_tokens, y.data()); });
    GemmSpeed speed{};
    speed.isa = isa;
    speed.shape = shape;
    speed.num_tokens = num_tokens;
    speed.median_us = 1e6 * median;
    speed.gflops = 2e-9 * num_tokens * shape.rows * shape.cols / median;
    speed.weight_gbytes = 1e-9 * bytes / median;
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
    for (const GemmShape& shape : shapes) {
      const double peak = PeakGflops(all, isa);
      const double before = ReadBandwidth(reader.get());
      std::vector<GemmSpeed> speeds = MeasureShape(all, isa, shape);
      if (speeds.empty()) return absl::ResourceExhaustedError("not enough memory");
      const double bandwidth = (before + ReadBandwidth(reader.get())) / 2;
      for (GemmSpeed& speed : speeds) {
        speed.read_gbytes = bandwidth;
        speed.peak_gflops = peak;
        speed.limit_us = speed.median_us * std::max(speed.weight_gbytes / bandwidth, speed.gflops / peak);
        report(speed);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
