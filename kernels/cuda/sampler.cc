#include "kernels/cuda/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace quire::cuda {
namespace {

// Two blocks of threads may share a multiprocessor.
constexpr int kBlocksPerMultiprocessor = 2;
constexpr size_t kAlignment = 16;

size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool IsInVocabulary(int32_t token, int vocab_size) {
  return token >= 0 && token < vocab_size;
}

bool HasPenalty(const SamplingRow& row) {
  return row.presence_penalty != 0 || row.frequency_penalty != 0 || row.repetition_penalty != 1;
}

bool ChangesLogits(const PackedSamplingRow& row) {
  return row.num_penalties > 0 || row.num_biases > 0 || row.mask_kind != MaskKind::kNone;
}

}  // namespace

Sampler::Sampler(Device* device, const KernelTable* kernels) : device_(device), kernels_(kernels) {}

Sampler::~Sampler() {
  Release(&upload_);
  Release(&results_);
  Release(&scratch_);
}

void Sampler::Run(const SamplingArgs& args) {
  if (args.num_rows == 0) return;
  SamplingKernelArgs kernel_args = Pack(args);
  const int num_blocks = std::min(args.num_rows, kBlocksPerMultiprocessor * device_->num_multiprocessors());
  const PackedSamplingRow* const rows = reinterpret_cast<const PackedSamplingRow*>(upload_.host);
  if (std::any_of(rows, rows + args.num_rows, ChangesLogits)) {
    kernel_args.scratch_stride = (args.vocab_size + 3) / 4 * 4;
    Reserve(sizeof(float) * kernel_args.scratch_stride * num_blocks, /*has_host=*/false, &scratch_);
    kernel_args.scratch = reinterpret_cast<float*>(scratch_.device);
  }
  const size_t top_start = Aligned(sizeof(SamplingResult) * args.num_rows);
  const size_t top_bytes = sizeof(ScoredCandidate) * args.num_rows * args.max_top;
  Reserve(top_start + top_bytes, /*has_host=*/true, &results_);
  kernel_args.results = reinterpret_cast<SamplingResult*>(results_.device);
  kernel_args.top = reinterpret_cast<ScoredCandidate*>(results_.device + top_start);

  device_->Launch(kernels_->sampling, kernel_args, num_blocks);
  device_->Copy(results_.host, results_.device, top_start + top_bytes);
  device_->Synchronize();
  std::memcpy(args.results, results_.host, sizeof(SamplingResult) * args.num_rows);
  if (top_bytes > 0) std::memcpy(args.top, results_.host + top_start, top_bytes);
}

SamplingKernelArgs Sampler::Pack(const SamplingArgs& args) {
  int64_t num_counts = 0, num_biases = 0, num_masks = 0;
  for (int i = 0; i < args.num_rows; ++i) {
    const SamplingRow& row = args.rows[i];
    num_counts += row.num_counts;
    num_biases += row.num_biases;
    num_masks += std::max(row.num_allowed, row.num_masked);
  }
  const size_t penalties_start = Aligned(sizeof(PackedSamplingRow) * args.num_rows);
  const size_t biases_start = penalties_start + Aligned(sizeof(TokenPenalty) * num_counts);
  const size_t masks_start = biases_start + Aligned(sizeof(TokenBias) * num_biases);
  Reserve(masks_start + sizeof(int32_t) * num_masks, /*has_host=*/true, &upload_);
  if (is_masked_.size() < size_t(args.vocab_size)) is_masked_.resize(args.vocab_size);

  Upload upload = {};
  upload.rows = reinterpret_cast<PackedSamplingRow*>(upload_.host);
  upload.penalties = reinterpret_cast<TokenPenalty*>(upload_.host + penalties_start);
  upload.biases = reinterpret_cast<TokenBias*>(upload_.host + biases_start);
  upload.masks = reinterpret_cast<int32_t*>(upload_.host + masks_start);
  for (int i = 0; i < args.num_rows; ++i) PackRow(args, i, &upload);
  device_->Copy(upload_.device, upload_.host, masks_start + sizeof(int32_t) * upload.num_masks);

  SamplingKernelArgs result = {};
  result.logits = args.logits;
  result.rows = reinterpret_cast<const PackedSamplingRow*>(upload_.device);
  result.penalties = reinterpret_cast<const TokenPenalty*>(upload_.device + penalties_start);
  result.biases = reinterpret_cast<const TokenBias*>(upload_.device + biases_start);
  result.masks = reinterpret_cast<const int32_t*>(upload_.device + masks_start);
  result.num_rows = args.num_rows;
  result.vocab_size = args.vocab_size;
  result.max_top = args.max_top;
  return result;
}

void Sampler::PackRow(const SamplingArgs& args, int index, Upload* upload) {
  const SamplingRow& row = args.rows[index];
  PackedSamplingRow packed = {};
  packed.seed = row.seed;
  packed.position = row.position;
  packed.logit_row = args.logit_rows == nullptr ? index : args.logit_rows[index];
  packed.temperature = row.temperature;
  packed.top_p = row.top_p;
  packed.log_min_p = row.min_p > 0 ? std::log(row.min_p) : -std::numeric_limits<float>::infinity();
  packed.top_k = row.top_k;
  packed.num_kept = args.vocab_size;
  packed.num_top = std::min({row.num_top, args.max_top, args.vocab_size});
  // A row that asks for logprobs keeps asking where there is no room for a list.
  if (row.num_top >= 0) packed.num_top = std::max(packed.num_top, 0);
  packed.given_token = row.given_token;
  if (row.given_token < 0) {
    PackPenalties(row, args.vocab_size, &packed, upload);
    PackBiases(row, args.vocab_size, &packed, upload);
    PackMasks(row, args.vocab_size, &packed, upload);
  }
  packed.num_candidates = row.num_candidates > 0 ? std::min({row.num_candidates, packed.num_kept, args.max_top}) : -1;
  upload->rows[index] = packed;
}

void Sampler::PackPenalties(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload) {
  packed->first_penalty = upload->num_penalties;
  if (!HasPenalty(row)) return;
  for (int i = 0; i < row.num_counts; ++i) {
    const TokenCount& count = row.counts[i];
    if (!IsInVocabulary(count.token, vocab_size)) continue;
    const bool occurred = count.prompt_count > 0 || count.output_count > 0;
    upload->penalties[upload->num_penalties++] = {count.token, occurred ? row.repetition_penalty : 1,
                                                  row.frequency_penalty * float(count.output_count),
                                                  count.output_count > 0 ? row.presence_penalty : 0};
  }
  packed->num_penalties = upload->num_penalties - packed->first_penalty;
}

void Sampler::PackBiases(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload) {
  packed->first_bias = upload->num_biases;
  for (int i = 0; i < row.num_biases; ++i) {
    if (IsInVocabulary(row.biases[i].token, vocab_size)) upload->biases[upload->num_biases++] = row.biases[i];
  }
  packed->num_biases = upload->num_biases - packed->first_bias;
  // The kernel adds the biases of one token in one thread.
  std::sort(
      upload->biases + packed->first_bias, upload->biases + upload->num_biases,
      [](const TokenBias& a, const TokenBias& b) { return a.token != b.token ? a.token < b.token : a.bias < b.bias; });
}

void Sampler::PackMasks(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload) {
  packed->first_mask = upload->num_masks;
  int32_t* const masks = upload->masks + upload->num_masks;
  int num_masked = 0;  // Different tokens.
  for (int i = 0; i < row.num_masked; ++i) {
    const int32_t token = row.masked[i];
    if (!IsInVocabulary(token, vocab_size) || is_masked_[token] != 0) continue;
    is_masked_[token] = 1;
    if (row.num_allowed == 0) masks[num_masked] = token;
    ++num_masked;
  }
  if (row.num_allowed > 0) {
    const auto collect_allowed = [&](bool applies_masked) {
      int count = 0;
      for (int i = 0; i < row.num_allowed; ++i) {
        const int32_t token = row.allowed[i];
        if (!IsInVocabulary(token, vocab_size) || (applies_masked && is_masked_[token] != 0)) continue;
        masks[count++] = token;
      }
      return count;
    };
    packed->mask_kind = MaskKind::kAllowed;
    packed->num_masks = collect_allowed(/*applies_masked=*/true);
    if (packed->num_masks == 0) packed->num_masks = collect_allowed(/*applies_masked=*/false);
    packed->num_kept = packed->num_masks;
  } else if (num_masked > 0 && num_masked < vocab_size) {
    packed->mask_kind = MaskKind::kMasked;
    packed->num_masks = num_masked;
    packed->num_kept = vocab_size - num_masked;
  }
  upload->num_masks += packed->num_masks;
  for (int i = 0; i < row.num_masked; ++i) {
    if (IsInVocabulary(row.masked[i], vocab_size)) is_masked_[row.masked[i]] = 0;
  }
}

void Sampler::Reserve(size_t bytes, bool has_host, Buffer* buffer) {
  if (bytes <= buffer->bytes) return;
  const size_t grown = std::max(bytes, 2 * buffer->bytes);
  Release(buffer);
  buffer->device = static_cast<char*>(device_->Allocate(grown));
  if (has_host) buffer->host = static_cast<char*>(device_->AllocateHost(grown));
  if (buffer->device == nullptr || (has_host && buffer->host == nullptr)) {
    std::fprintf(stderr, "no memory for sampling: %zu bytes\n", grown);
    std::abort();
  }
  buffer->bytes = grown;
}

void Sampler::Release(Buffer* buffer) {
  if (buffer->device != nullptr) device_->Free(buffer->device);
  if (buffer->host != nullptr) device_->FreeHost(buffer->host);
  *buffer = {};
}

}  // namespace quire::cuda
