// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_SAMPLER_H_
#define QUIRE_KERNELS_CUDA_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/sampling_args.h"
#include "kernels/cuda/upload_arena.h"

namespace quire::cuda {

// Draws and scores tokens from logits on the device, as kernels/sampling.h specifies. A pass of Run needs one upload of
// the rows' parameters, one launch and one or two downloads. Prepare, Launch and CopyResults do the same with the
// caller's upload. The buffers are kept and only grow. Owned by the executor thread.
class Sampler {
 public:
  // The upload of a pass, if it has several rows.
  static constexpr size_t kPassBytes = size_t{16} << 20;

  // The device and the kernels must outlive this object.
  Sampler(Device* device, const KernelTable* kernels, size_t pass_bytes = kPassBytes);

  // Makes places [0, num_places) for drawn tokens.
  void KeepDrawnTokens(int num_places) { drawn_tokens_.Reserve<int32_t>(num_places); }
  // Returns the token drawn last for each place, in device memory.
  const int32_t* drawn_tokens() { return drawn_tokens_.Reserve<int32_t>(1); }

  // Takes all memory for calls with these largest numbers, whatever the rows ask for. Returns false when there is not
  // enough.
  bool Reserve(int max_rows, int vocab_size, int max_top);
  // Queues all work. The results are ready at a later mark. Rows whose penalties, biases and masks do not fit one
  // upload of pass_bytes are drawn in several passes.
  void Run(const SamplingArgs& args);

  // Returns whether everything about these rows but their results has a fixed size: they have no penalties, biases and
  // masks.
  static bool HasFixedSize(const SamplingArgs& args);
  // The room that Prepare needs for `num_rows` rows, with the rows that it adds.
  static size_t UploadBytes(const SamplingArgs& args, int num_rows);
  // Adds the rows to the caller's upload, and rows without meaning behind them. Reserves the memory of the results.
  // The addresses for other rows of fixed size are the same if num_rows and args.max_top are, as long as
  // Device::num_frees is.
  void Prepare(const SamplingArgs& args, int num_rows, UploadArena* arena);
  // Queues the launch for the prepared rows.
  void Launch(const float* logits);
  // Queues the copies of the prepared rows' results.
  void CopyResults(const SamplingArgs& args);

 private:
  // The arrays to upload, and how far they are filled.
  struct Upload {
    UploadArena::Room<PackedSamplingRow> rows;
    UploadArena::Room<TokenPenalty> penalties;
    UploadArena::Room<TokenBias> biases;
    UploadArena::Room<int32_t> masks;
    int32_t num_penalties = 0, num_biases = 0, num_masks = 0;
  };

  // Returns the rows from `begin` on that one pass draws; at least one.
  SamplingArgs PassFrom(const SamplingArgs& args, int begin) const;
  void PackRow(const SamplingArgs& args, int index, Upload* upload);
  void PackPenalties(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload);
  void PackBiases(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload);
  void PackMasks(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload);

  Device* const device_;
  const KernelTable* const kernels_;
  const size_t pass_bytes_;
  UploadArena arena_;
  SamplingKernelArgs prepared_ = {};  // All arguments but the logits.
  int num_blocks_ = 0;                // Number of blocks of the launch of prepared_.
  DeviceBuffer results_, top_, scratch_, drawn_tokens_;
  std::vector<uint8_t> is_masked_;  // [vocab_size], all 0 between rows.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_SAMPLER_H_
