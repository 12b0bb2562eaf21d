#ifndef QUIRE_KERNELS_CUDA_SAMPLER_H_
#define QUIRE_KERNELS_CUDA_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/sampling_args.h"

namespace quire::cuda {

// Draws and scores tokens from logits on the device, as kernels/sampling.h says: one upload of what the rows want, one
// launch, one download. Keeps its buffers, which only grow. Owned by the executor thread.
class Sampler {
 public:
  // Both must outlive this.
  Sampler(Device* device, const KernelTable* kernels);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Waits for the results, and so for everything that was queued before.
  void Run(const SamplingArgs& args);

 private:
  // Memory of the device, and as much pinned memory of the host beside it.
  struct Buffer {
    char* device = nullptr;
    char* host = nullptr;
    size_t bytes = 0;
  };
  // Where the parts of the upload begin, and the ends of those that are filled so far.
  struct Upload {
    PackedSamplingRow* rows;
    TokenPenalty* penalties;
    TokenBias* biases;
    int32_t* masks;
    int32_t num_penalties, num_biases, num_masks;
  };

  // Lays out and fills upload_; the arguments that say so on the device, without results and scratch.
  SamplingKernelArgs Pack(const SamplingArgs& args);
  void PackRow(const SamplingArgs& args, int index, Upload* upload);
  void PackPenalties(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload);
  void PackBiases(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload);
  void PackMasks(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload);
  // Makes the buffer at least that large; its contents are lost then.
  void Reserve(size_t bytes, bool has_host, Buffer* buffer);
  void Release(Buffer* buffer);

  Device* const device_;
  const KernelTable* const kernels_;
  Buffer upload_, results_;
  Buffer scratch_;                  // Without host memory.
  std::vector<uint8_t> is_masked_;  // [vocab_size], all 0 between rows.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_SAMPLER_H_
