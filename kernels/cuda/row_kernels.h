// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ROW_KERNELS_H_
#define QUIRE_KERNELS_CUDA_ROW_KERNELS_H_

#include <cstdint>

#include "kernels/activate.h"
#include "kernels/cuda/vector8.h"

// Element-wise operations on rows of activations.

namespace quire::cuda {

// y[i, :] = x[rows[i], :] * scale. Gathers token embeddings, and the rows whose logits are needed.
struct GatherRowsArgs {
  const uint16_t* x;    // [some rows, dim]
  const int32_t* rows;  // [num_rows]; a negative value means the row written_rows[-1 - row].
  uint16_t* y;          // [num_rows, dim]
  int32_t num_rows;
  int32_t dim;                            // A multiple of 8.
  const int32_t* written_rows = nullptr;  // An earlier kernel writes them.
  float scale = 1;                        // Only GatherScaledRowsKernel reads it.
};

// A warp handles one row at a time.
class GatherRowsKernel {
 public:
  using Args = GatherRowsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;
  static constexpr int kRowsPerBlock = kThreads / simt::kWarpSize;

  static QUIRE_DEVICE void Run(const GatherRowsArgs& args) {
    GatherChunks(args, [](const uint16_t* from, uint16_t* to) {
      simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(to),
                        simt::LoadGlobal(reinterpret_cast<const simt::U32x4*>(from)));
    });
  }

 protected:
  // Calls copy(from, to) for every eight elements.
  template <typename F>
  static QUIRE_DEVICE void GatherChunks(const GatherRowsArgs& args, F copy) {
    simt::WaitForPriorGrid();
    for (int i = simt::BlockIndex() * kRowsPerBlock + simt::WarpIndex(); i < args.num_rows;
         i += simt::GridSize() * kRowsPerBlock) {
      int64_t row = simt::LoadReadOnly(args.rows + i);
      if (row < 0) row = simt::LoadGlobal(args.written_rows + (-1 - row));
      const uint16_t* const from = args.x + row * args.dim;
      uint16_t* const to = args.y + int64_t{i} * args.dim;
      for (int d = 8 * simt::LaneIndex(); d < args.dim; d += 8 * simt::kWarpSize) copy(from + d, to + d);
    }
    simt::TriggerNextGrid();
  }
};

template <typename Element>
class GatherScaledRowsKernel : public GatherRowsKernel {
 public:
  static QUIRE_DEVICE void Run(const GatherRowsArgs& args) {
    GatherChunks(args, [&](const uint16_t* from, uint16_t* to) {
      Vector8<Element> row = Vector8<Element>::Load(from);
      QUIRE_UNROLL for (int i = 0; i < 8; ++i) row.x[i] *= args.scale;
      row.Store(to);
    });
  }
};

// y[i, k] = x[i, columns[k]]. Puts the input of a product into the order of the columns of its weights.
struct GatherColumnsArgs {
  const uint16_t* x;       // [num_rows, dim]
  const int32_t* columns;  // [dim]
  uint16_t* y;             // [num_rows, dim]
  int32_t num_rows;
  int32_t dim;  // A multiple of 8.
};

// A thread writes eight elements at a time.
class GatherColumnsKernel {
 public:
  using Args = GatherColumnsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const GatherColumnsArgs& args) {
    simt::WaitForPriorGrid();
    const int64_t chunks_per_row = args.dim / 8, num_chunks = args.num_rows * chunks_per_row;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < num_chunks;
         i += int64_t{simt::GridSize()} * kThreads) {
      const uint16_t* const x = args.x + i / chunks_per_row * args.dim;
      const int32_t* const columns = args.columns + i % chunks_per_row * 8;
      simt::U32x4 words;
      QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
        const uint32_t low = simt::LoadGlobal(x + simt::LoadReadOnly(columns + 2 * j));
        const uint32_t high = simt::LoadGlobal(x + simt::LoadReadOnly(columns + 2 * j + 1));
        words.word[j] = low | high << 16;
      }
      simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(args.y + 8 * i), words);
    }
    simt::TriggerNextGrid();
  }
};

// y[i, :] += bias.
struct AddBiasArgs {
  uint16_t* y;        // [num_rows, dim]
  const float* bias;  // [dim], aligned to 16 bytes.
  int32_t num_rows;
  int32_t dim;  // A multiple of 8.
};

template <typename Element>
class AddBiasKernel {
 public:
  using Args = AddBiasArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const AddBiasArgs& args) {
    simt::WaitForPriorGrid();
    const int64_t chunks_per_row = args.dim / 8, num_chunks = args.num_rows * chunks_per_row;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < num_chunks;
         i += int64_t{simt::GridSize()} * kThreads) {
      const int64_t d = i % chunks_per_row * 8;
      Vector8<Element> y = Vector8<Element>::Load(args.y + 8 * i);
      QUIRE_UNROLL for (int j = 0; j < 8; j += 4) {
        const Floats4 bias = Floats4::LoadReadOnly(args.bias + d + j);
        QUIRE_UNROLL for (int k = 0; k < 4; ++k) y.x[j + k] += bias.x[k];
      }
      y.Store(args.y + 8 * i);
    }
    simt::TriggerNextGrid();
  }
};

// y[i, :] = scale * (x[i, :] + bias) + residual[i, :]. This is the end of a product with a scale.
struct ScaleRowsArgs {
  const uint16_t* x;         // [num_rows, dim]
  const float* bias;         // [dim], aligned to 16 bytes, or null.
  const uint16_t* residual;  // [num_rows, dim] or null.
  uint16_t* y;               // [num_rows, dim]; may be the residual.
  int32_t num_rows;
  int32_t dim;  // A multiple of 8.
  float scale;
};

template <typename Element>
class ScaleRowsKernel {
 public:
  using Args = ScaleRowsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const ScaleRowsArgs& args) {
    simt::WaitForPriorGrid();
    const int64_t chunks_per_row = args.dim / 8, num_chunks = args.num_rows * chunks_per_row;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < num_chunks;
         i += int64_t{simt::GridSize()} * kThreads) {
      Vector8<Element> y = Vector8<Element>::Load(args.x + 8 * i), residual = {};
      if (args.residual != nullptr) residual = Vector8<Element>::Load(args.residual + 8 * i);
      QUIRE_UNROLL for (int j = 0; j < 8; j += 4) {
        Floats4 bias = {};
        if (args.bias != nullptr) bias = Floats4::LoadReadOnly(args.bias + i % chunks_per_row * 8 + j);
        QUIRE_UNROLL for (int k = 0; k < 4; ++k) {
          y.x[j + k] = (y.x[j + k] + bias.x[k]) * args.scale + residual.x[j + k];
        }
      }
      y.Store(args.y + 8 * i);
    }
    simt::TriggerNextGrid();
  }
};

// y = cap(scale * y) of logits, where cap(a) is softcap * tanh(a / softcap), or a if the softcap is 0.
struct CapLogitsArgs {
  float* y;  // [count], aligned to 16 bytes.
  int64_t count;
  float scale;
  float softcap;
};

// A thread handles four logits at a time.
class CapLogitsKernel {
 public:
  using Args = CapLogitsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;
  static constexpr int kLogitsPerBlock = 4 * kThreads;

  static QUIRE_DEVICE void Run(const CapLogitsArgs& args) {
    simt::WaitForPriorGrid();
    for (int64_t i = 4 * (int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex()); i < args.count;
         i += int64_t{simt::GridSize()} * kLogitsPerBlock) {
      if (i + 4 <= args.count) {
        Floats4 y = Floats4::Load(args.y + i);
        QUIRE_UNROLL for (int j = 0; j < 4; ++j) y.x[j] = Cap(args, y.x[j]);
        y.Store(args.y + i);
        continue;
      }
      for (int64_t j = i; j < args.count; ++j) simt::StoreGlobal(args.y + j, Cap(args, simt::LoadGlobal(args.y + j)));
    }
    simt::TriggerNextGrid();
  }

 private:
  // tanh(a) is 1 - 2 / (1 + exp(2 a)).
  static QUIRE_DEVICE float Cap(const CapLogitsArgs& args, float y) {
    constexpr float kTwoLog2E = 2.88539008f;
    y *= args.scale;
    if (args.softcap == 0) return y;
    const float share = simt::Reciprocal(1 + simt::Exp2(y / args.softcap * kTwoLog2E));
    return __builtin_fmaf(-2 * args.softcap, share, args.softcap);
  }
};

// The activations of linear.h.
struct Silu {
  static QUIRE_DEVICE float Of(float a) {
    constexpr float kLog2E = 1.44269504f;
    return a * simt::Reciprocal(1 + simt::Exp2(-a * kLog2E));
  }
};
struct GeluTanh {
  static QUIRE_DEVICE float Of(float a) {
    // 2 sqrt(2 / pi) log2(e), and 0.044715 times that.
    constexpr float kSlope = 2.30220819f, kCubic = 0.102943239f;
    return a * simt::Reciprocal(1 + simt::Exp2(-a * (kSlope + kCubic * a * a)));
  }
};

// y[i, j] = activation(x[i, j]) * x[i, dim + j].
// This is the middle of a gated MLP whose gate and up matrices were multiplied as one.
struct GatedArgs {
  const uint16_t* x;  // [num_rows, 2 * dim]
  uint16_t* y;        // [num_rows, dim]
  int32_t num_rows;
  int32_t dim;  // A multiple of 8.
};

template <typename Element, typename Activation>
class GatedKernel {
 public:
  using Args = GatedArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const GatedArgs& args) {
    simt::WaitForPriorGrid();
    const int64_t chunks_per_row = args.dim / 8, num_chunks = args.num_rows * chunks_per_row;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < num_chunks;
         i += int64_t{simt::GridSize()} * kThreads) {
      const int64_t row = i / chunks_per_row, d = i % chunks_per_row * 8;
      const uint16_t* const x = args.x + row * 2 * args.dim + d;
      const Vector8<Element> gate = Vector8<Element>::Load(x), up = Vector8<Element>::Load(x + args.dim);
      Vector8<Element> y;
      QUIRE_UNROLL for (int j = 0; j < 8; ++j) y.x[j] = Activation::Of(gate.x[j]) * up.x[j];
      y.Store(args.y + row * args.dim + d);
    }
    simt::TriggerNextGrid();
  }
};

// y = activation(x), in an MLP without a gate.
struct ActivateKernelArgs {
  const uint16_t* x;  // [count]
  uint16_t* y;        // [count]; may be x.
  int64_t count;      // A multiple of 8.
  PlainActivation activation;
  XieluShape xielu;
};

template <typename Element>
class ActivateKernel {
 public:
  using Args = ActivateKernelArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const ActivateKernelArgs& args) {
    simt::WaitForPriorGrid();
    for (int64_t i = 8 * (int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex()); i < args.count;
         i += int64_t{simt::GridSize()} * 8 * kThreads) {
      Vector8<Element> y = Vector8<Element>::Load(args.x + i);
      if (args.activation == PlainActivation::kSquaredRelu) {
        QUIRE_UNROLL for (int j = 0; j < 8; ++j) y.x[j] = y.x[j] <= 0 ? 0 : y.x[j] * y.x[j];
      } else {
        QUIRE_UNROLL for (int j = 0; j < 8; ++j) y.x[j] = Xielu(args.xielu, y.x[j]);
      }
      y.Store(args.y + i);
    }
    simt::TriggerNextGrid();
  }

 private:
  static QUIRE_DEVICE float Xielu(const XieluShape& shape, float a) {
    constexpr float kLog2E = 1.44269504f;
    const float limited = a < shape.limit ? a : shape.limit;
    const float curve = a > 0 ? shape.positive * a * a : shape.negative * (simt::Exp2(limited * kLog2E) - 1 - a);
    return curve + shape.beta * a;
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ROW_KERNELS_H_
