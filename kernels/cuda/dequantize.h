// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_DEQUANTIZE_H_
#define QUIRE_KERNELS_CUDA_DEQUANTIZE_H_

#include <cstdint>

#include "kernels/cuda/packed_weights.h"

namespace quire::cuda {

// y[n][k] = round((value[n][k] - zero) * scale), the product in float32, for the rows of some tiles. cuBLASLt
// multiplies y when a step has many tokens.
struct DequantizeArgs {
  PackedWeights w;
  uint16_t* y;  // [the rows of the tiles, w.cols]; rows that the matrix does not have are left out.
  int32_t first_tile;
  int32_t num_tiles;
};

// A warp converts one block of a tile at a time.
template <typename Element, typename Values>
class DequantizeKernel {
 public:
  using Args = DequantizeArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;
  static constexpr int kWarps = kThreads / simt::kWarpSize;

  static QUIRE_DEVICE void Run(const DequantizeArgs& args) {
    simt::WaitForPriorGrid();
    const int64_t num_units = int64_t{args.num_tiles} * args.w.num_blocks;
    for (int64_t i = int64_t{simt::BlockIndex()} * kWarps + simt::WarpIndex(); i < num_units;
         i += int64_t{simt::GridSize()} * kWarps) {
      ConvertBlock(args, int(i / args.w.num_blocks), int(i % args.w.num_blocks));
    }
    simt::TriggerNextGrid();
  }

 private:
  static QUIRE_DEVICE void ConvertBlock(const DequantizeArgs& args, int tile_of_y, int block) {
    const PackedWeights& w = args.w;
    const int lane = simt::LaneIndex(), tile = args.first_tile + tile_of_y;
    const char* const from =
        w.values + (int64_t{tile} * w.num_blocks + block) * Values::kPieces * kPieceBytes + 16 * lane;
    simt::U32x4 pieces[Values::kPieces];
    QUIRE_UNROLL for (int i = 0; i < Values::kPieces; ++i) {
      pieces[i] = simt::LoadReadOnly(reinterpret_cast<const simt::U32x4*>(from + i * kPieceBytes));
    }
    QUIRE_UNROLL for (int quarter = 0; quarter < kBlockQuarters; ++quarter) {
      const int k = kBlockColumns * block + kQuarterColumns * quarter + 8 * (lane % 4);
      const LaneScales scales =
          LaneScales::Load<Values>(w, tile, (kBlockQuarters * block + quarter) / w.group_quarters);
      const WeightFragments fragments = Values::template Convert<Element>(pieces, quarter, scales.zeros);
      QUIRE_UNROLL for (int r = 0; r < 2; ++r) {
        const int row = lane / 4 + 8 * r;
        simt::U32x4 words;
        QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
          const uint32_t pair = fragments.step[j / 2][r + 2 * (j % 2)];
          words.word[j] = Element::Pack(Element::Low(pair) * scales.scale[r], Element::High(pair) * scales.scale[r]);
        }
        if (kWeightTileRows * tile + row < w.rows && k < w.cols) {
          uint16_t* const to = args.y + (int64_t{kWeightTileRows} * tile_of_y + row) * w.cols + k;
          simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(to), words);
        }
      }
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_DEQUANTIZE_H_
