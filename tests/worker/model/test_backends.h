// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_TEST_BACKENDS_H_
#define QUIRE_TESTS_WORKER_MODEL_TEST_BACKENDS_H_

#include <memory>
#include <vector>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/forwarding_backend.h"

namespace quire {

// Decides whether matrices stay FP8, on every instruction set.
class Fp8Backend : public ForwardingBackend {
 public:
  Fp8Backend(cpu::Isa isa, int num_threads, bool multiplies)
      : ForwardingBackend(cpu::MakeCpuBackend(num_threads, isa)), multiplies_(multiplies) {}
  bool MultipliesFp8() const override { return multiplies_; }

 private:
  const bool multiplies_;
};

// Multiplies by the numbers of int8 times their scales, in float32. So no input of a product is rounded, also not in
// products by bfloat16.
class ExactInputsBackend : public ForwardingBackend {
 public:
  ExactInputsBackend() : ForwardingBackend(cpu::MakeCpuBackend(/*num_threads=*/1, cpu::Isa::kGeneric)) {}

  std::unique_ptr<PackedMatrix> PackQuantized(const QuantizedMatrixView* matrices, int num_matrices) override {
    if (matrices[0].format != QuantizedFormat::kInt8) return backend().PackQuantized(matrices, num_matrices);
    std::vector<std::vector<float>> weights;
    std::vector<MatrixView> views;
    for (int i = 0; i < num_matrices; ++i) {
      weights.push_back(Weights(matrices[i]));
      views.push_back({weights.back().data(), matrices[i].rows, matrices[i].cols, DataType::kFloat32});
    }
    return backend().Pack(views.data(), num_matrices);
  }
  std::unique_ptr<PackedMatrix> PackGatedQuantized(const QuantizedMatrixView& gate,
                                                   const QuantizedMatrixView& up) override {
    if (gate.format != QuantizedFormat::kInt8) return backend().PackGatedQuantized(gate, up);
    const std::vector<float> gate_weights = Weights(gate), up_weights = Weights(up);
    return backend().PackGated({gate_weights.data(), gate.rows, gate.cols, DataType::kFloat32},
                               {up_weights.data(), up.rows, up.cols, DataType::kFloat32});
  }
  BackendStatus CheckQuantized(const PackedMatrix& w, const QuantizedMatrixView* matrices, int num_matrices) override {
    if (matrices[0].format == QuantizedFormat::kInt8) return BackendStatus::Ok();
    return backend().CheckQuantized(w, matrices, num_matrices);
  }

 private:
  static std::vector<float> Weights(const QuantizedMatrixView& matrix) {
    std::vector<float> weights(static_cast<size_t>(matrix.rows) * matrix.cols);
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<float>(matrix.values[i]) * matrix.scales[i / static_cast<size_t>(matrix.cols)];
    }
    return weights;
  }
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_TEST_BACKENDS_H_
