// SPDX-License-Identifier: Apache-2.0

#include <map>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/forwarding_backend.h"
#include "tests/worker/model/model_files.h"
#include "tools/make_model/model_shape.h"
#include "tools/make_model/safetensors_writer.h"
#include "worker/model/model.h"

namespace quire {
namespace {

using Shape = std::pair<int, int>;  // Rows and columns.

// Notes the slices of each matrix.
class NotingBackend : public ForwardingBackend {
 public:
  NotingBackend() : ForwardingBackend(MakeCpuBackend(1)) {}

  std::unique_ptr<PackedMatrix> Pack(const MatrixView* matrices, int num_matrices) override {
    Note(matrices, num_matrices);
    return ForwardingBackend::Pack(matrices, num_matrices);
  }
  std::unique_ptr<PackedMatrix> PackGated(const MatrixView& gate, const MatrixView& up) override {
    const MatrixView matrices[] = {gate, up};
    Note(matrices, 2);
    return ForwardingBackend::PackGated(gate, up);
  }
  std::unique_ptr<PackedMatrix> PackQuantized(const QuantizedMatrixView* matrices, int num_matrices) override {
    Note(matrices, num_matrices);
    return ForwardingBackend::PackQuantized(matrices, num_matrices);
  }
  std::unique_ptr<PackedMatrix> PackGatedQuantized(const QuantizedMatrixView& gate,
                                                   const QuantizedMatrixView& up) override {
    const QuantizedMatrixView matrices[] = {gate, up};
    Note(matrices, 2);
    return ForwardingBackend::PackGatedQuantized(gate, up);
  }

  const std::map<Shape, int>& slices() const { return slices_; }

 private:
  template <typename View>
  void Note(const View* matrices, int num_matrices) {
    for (int i = 0; i < num_matrices; ++i) slices_[{matrices[i].rows, matrices[i].cols}] = matrices[i].num_slices;
  }

  std::map<Shape, int> slices_;
};

// Only the last matrices of attention and of the MLP are summed in slices. Slices of attention are whole heads, and
// slices of a quantized matrix are whole groups of 128 columns.
TEST(MatrixSlicesTest, OnlyRowParallelMatricesHaveSlices) {
  make_model::ModelShape shape = *make_model::Preset("tiny");
  shape.heads = 14;
  shape.head_dim = 192;  // 4 x 672 columns are no whole heads, and 2 x 1344 no whole groups.
  shape.ffn = 3072;
  ASSERT_EQ(Complete(&shape), "");
  const TestDirectory directory;
  directory.Write("config.json", ConfigJson(shape, Name(DataType::kBFloat16)));
  const absl::Status status =
      WriteRandomTensors(TensorsOf(shape), DataType::kBFloat16, 1, directory.path() + "/model.safetensors");
  ASSERT_TRUE(status.ok()) << status;
  for (const bool is_int4 : {false, true}) {
    NotingBackend backend;
    WeightRounding rounding;
    if (is_int4) rounding.layers = Quantization::kInt4;
    const auto model = LoadModel(directory.path(), &backend, /*progress=*/nullptr, rounding);
    ASSERT_TRUE(model.ok()) << model.status();
    const std::map<Shape, int> expected = {
        {{512, 64}, 1},                 // Embedding and output.
        {{2688, 64}, 1},                // Q.
        {{384, 64}, 1},                 // K and V.
        {{64, 2688}, is_int4 ? 1 : 2},  // Output of attention.
        {{3072, 64}, 1},                // Gate and up.
        {{64, 3072}, 4},                // Down.
    };
    EXPECT_EQ(backend.slices(), expected) << (is_int4 ? "int4" : "bfloat16");
  }
}

}  // namespace
}  // namespace quire
