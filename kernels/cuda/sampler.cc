#include "kernels/cuda/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire::cuda {
namespace {

// Two thread blocks can share a multiprocessor.
constexpr int kBlocksPerMultiprocessor = 2;

bool IsInVocabulary(int32_t token, int vocab_size) {
  return token >= 0 && token < vocab_size;
}

bool HasPenalty(const SamplingRow& row) {
  return row.presence_penalty != 0 || row.frequency_penalty != 0 || row.repetition_penalty != 1;
}

bool ChangesLogits(const PackedSamplingRow& row) {
  return row.num_penalties > 0 || row.pending_place >= 0 || row.num_biases > 0 || row.mask_kind != MaskKind::kNone;
}

}  // namespace

Sampler::Sampler(Device* device, const KernelTable* kernels)
    : device_(device),
      kernels_(kernels),
      arena_(device),
      results_(device, "sampling"),
      top_(device, "sampling"),
      scratch_(device, "sampling"),
      drawn_tokens_(device, "drawn tokens") {}

void Sampler::Run(const SamplingArgs& args) {
  if (args.num_rows == 0) return;
  bool changes_logits = false;
  SamplingKernelArgs kernel_args = Pack(args, &changes_logits);
  const int num_blocks = std::min(args.num_rows, kBlocksPerMultiprocessor * device_->num_multiprocessors());
  if (changes_logits) {
    kernel_args.scratch_stride = (args.vocab_size + 3) / 4 * 4;
    kernel_args.scratch = scratch_.Reserve<float>(size_t(kernel_args.scratch_stride) * num_blocks);
  }
  const size_t num_top = size_t(args.num_rows) * args.max_top;
  kernel_args.results = results_.Reserve<SamplingResult>(args.num_rows);
  kernel_args.top = top_.Reserve<ScoredCandidate>(num_top);
  kernel_args.drawn_tokens = drawn_tokens_.Reserve<int32_t>(1);
  device_->Launch(kernels_->sampling, kernel_args, num_blocks);
  device_->Copy(args.results, kernel_args.results, sizeof(SamplingResult) * args.num_rows);
  device_->Copy(args.top, kernel_args.top, sizeof(ScoredCandidate) * num_top);
}

SamplingKernelArgs Sampler::Pack(const SamplingArgs& args, bool* changes_logits) {
  size_t num_counts = 0, num_biases = 0, num_masks = 0;
  for (int i = 0; i < args.num_rows; ++i) {
    const SamplingRow& row = args.rows[i];
    num_counts += row.num_counts;
    num_biases += row.num_biases;
    num_masks += std::max(row.num_allowed, row.num_masked);
  }
  arena_.Begin(UploadArena::BytesFor<PackedSamplingRow>(args.num_rows) +
               UploadArena::BytesFor<TokenPenalty>(num_counts) + UploadArena::BytesFor<TokenBias>(num_biases) +
               UploadArena::BytesFor<int32_t>(num_masks));
  Upload upload = {.rows = arena_.Add<PackedSamplingRow>(args.num_rows),
                   .penalties = arena_.Add<TokenPenalty>(num_counts),
                   .biases = arena_.Add<TokenBias>(num_biases),
                   .masks = arena_.Add<int32_t>(num_masks)};
  if (is_masked_.size() < size_t(args.vocab_size)) is_masked_.resize(args.vocab_size);
  for (int i = 0; i < args.num_rows; ++i) {
    PackRow(args, i, &upload);
    *changes_logits |= ChangesLogits(upload.rows.host[i]);
  }
  arena_.Upload();

  SamplingKernelArgs result = {};
  result.logits = args.logits;
  result.rows = upload.rows.device;
  result.penalties = upload.penalties.device;
  result.biases = upload.biases.device;
  result.masks = upload.masks.device;
  result.num_rows = args.num_rows;
  result.vocab_size = args.vocab_size;
  result.max_top = args.max_top;
  return result;
}

void Sampler::PackRow(const SamplingArgs& args, int index, Upload* upload) {
  const SamplingRow& row = args.rows[index];
  PackedSamplingRow packed = {};
  packed.pending_place = -1;
  packed.seed = row.seed;
  packed.position = row.position;
  packed.logit_row = args.logit_rows == nullptr ? index : args.logit_rows[index];
  packed.temperature = row.temperature;
  packed.top_p = row.top_p;
  packed.log_min_p = row.min_p > 0 ? std::log(row.min_p) : -std::numeric_limits<float>::infinity();
  packed.top_k = row.top_k;
  packed.num_kept = args.vocab_size;
  packed.num_top = std::min({row.num_top, args.max_top, args.vocab_size});
  // A row that requests logprobs keeps requesting them if there is no room for a list.
  if (row.num_top >= 0) packed.num_top = std::max(packed.num_top, 0);
  packed.given_token = row.given_token;
  packed.drawn_place = row.drawn_place;
  if (row.given_token < 0) {
    PackPenalties(row, args.vocab_size, &packed, upload);
    PackBiases(row, args.vocab_size, &packed, upload);
    PackMasks(row, args.vocab_size, &packed, upload);
  }
  packed.num_candidates = row.num_candidates > 0 ? std::min({row.num_candidates, packed.num_kept, args.max_top}) : -1;
  upload->rows.host[index] = packed;
}

void Sampler::PackPenalties(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload) {
  packed->first_penalty = upload->num_penalties;
  if (!HasPenalty(row)) return;
  packed->pending_place = row.pending_place;
  packed->pending_factor = row.repetition_penalty;
  packed->pending_frequency = row.frequency_penalty;
  packed->pending_presence = row.presence_penalty;
  for (int i = 0; i < row.num_counts; ++i) {
    const TokenCount& count = row.counts[i];
    if (!IsInVocabulary(count.token, vocab_size)) continue;
    const bool occurred = count.prompt_count > 0 || count.output_count > 0;
    upload->penalties.host[upload->num_penalties++] = {
        count.token, occurred ? row.repetition_penalty : 1, row.frequency_penalty * float(count.output_count),
        count.output_count > 0 ? row.presence_penalty : 0, row.frequency_penalty * float(count.output_count + 1)};
  }
  packed->num_penalties = upload->num_penalties - packed->first_penalty;
}

void Sampler::PackBiases(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload) {
  packed->first_bias = upload->num_biases;
  for (int i = 0; i < row.num_biases; ++i) {
    if (IsInVocabulary(row.biases[i].token, vocab_size)) upload->biases.host[upload->num_biases++] = row.biases[i];
  }
  packed->num_biases = upload->num_biases - packed->first_bias;
  // The biases are sorted by token, because the kernel adds the biases of one token in one thread.
  std::sort(
      upload->biases.host + packed->first_bias, upload->biases.host + upload->num_biases,
      [](const TokenBias& a, const TokenBias& b) { return a.token != b.token ? a.token < b.token : a.bias < b.bias; });
}

void Sampler::PackMasks(const SamplingRow& row, int vocab_size, PackedSamplingRow* packed, Upload* upload) {
  packed->first_mask = upload->num_masks;
  int32_t* const masks = upload->masks.host + upload->num_masks;
  int num_masked = 0;  // Counts distinct tokens.
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

}  // namespace quire::cuda
