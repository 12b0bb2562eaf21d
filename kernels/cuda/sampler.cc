// SPDX-License-Identifier: Apache-2.0

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

// Upper bounds on the sizes of the arrays of all rows.
struct ArraySizes {
  size_t penalties = 0, biases = 0, masks = 0;
};

void Add(const SamplingRow& row, ArraySizes* sizes) {
  sizes->penalties += row.num_counts;
  sizes->biases += row.num_biases;
  sizes->masks += std::max(row.num_allowed, row.num_masked);
}

ArraySizes SizesOf(const SamplingArgs& args) {
  ArraySizes sizes;
  for (int i = 0; i < args.num_rows; ++i) Add(args.rows[i], &sizes);
  return sizes;
}

size_t BytesOf(const ArraySizes& sizes, int num_rows) {
  return UploadArena::BytesFor<PackedSamplingRow>(num_rows) + UploadArena::BytesFor<TokenPenalty>(sizes.penalties) +
         UploadArena::BytesFor<TokenBias>(sizes.biases) + UploadArena::BytesFor<int32_t>(sizes.masks);
}

int ScratchStride(int vocab_size) {
  return (vocab_size + 3) / 4 * 4;
}

// Returns a row whose answer nobody reads: the best token of the first row of logits.
PackedSamplingRow RowWithoutMeaning(int vocab_size) {
  PackedSamplingRow row = {};
  row.numbers.temperature = 0;
  row.log_min_p = -std::numeric_limits<float>::infinity();
  row.num_kept = vocab_size;
  row.num_top = -1;
  row.given_token = -1;
  row.num_candidates = -1;
  row.drawn_place = -1;
  row.pending_place = -1;
  return row;
}

}  // namespace

Sampler::Sampler(Device* device, const KernelTable* kernels, size_t pass_bytes)
    : device_(device),
      kernels_(kernels),
      pass_bytes_(pass_bytes),
      arena_(device, Recorded::kNever),
      results_(device, "sampling"),
      top_(device, "sampling"),
      scratch_(device, "sampling", Recorded::kNever),
      drawn_tokens_(device, "drawn tokens") {}

bool Sampler::Reserve(int max_rows, int vocab_size, int max_top) {
  const size_t vocabulary = vocab_size;
  const size_t num_blocks = std::min(max_rows, kBlocksPerMultiprocessor * device_->num_multiprocessors());
  return results_.TryReserve<SamplingResult>(max_rows) &&
         top_.TryReserve<ScoredCandidate>(size_t(max_rows) * max_top) &&
         scratch_.TryReserve<float>(ScratchStride(vocab_size) * num_blocks) &&
         arena_.Reserve(std::max(pass_bytes_, BytesOf({vocabulary, vocabulary, vocabulary}, max_rows)));
}

SamplingArgs Sampler::PassFrom(const SamplingArgs& args, int begin) const {
  ArraySizes sizes;
  int end = begin;
  while (end < args.num_rows) {
    Add(args.rows[end], &sizes);
    if (end > begin && BytesOf(sizes, end + 1 - begin) > pass_bytes_) break;
    ++end;
  }
  SamplingArgs pass = args;
  pass.num_rows = end - begin;
  pass.rows += begin;
  pass.results += begin;
  if (pass.top != nullptr) pass.top += int64_t{begin} * args.max_top;
  if (pass.logit_rows != nullptr) {
    pass.logit_rows += begin;
  } else {
    pass.logits += int64_t{begin} * args.vocab_size;
  }
  return pass;
}

void Sampler::Run(const SamplingArgs& args) {
  for (int begin = 0; begin < args.num_rows;) {
    const SamplingArgs pass = PassFrom(args, begin);
    arena_.Begin(UploadBytes(pass, pass.num_rows));
    Prepare(pass, pass.num_rows, &arena_);
    arena_.Upload();
    Launch(pass.logits);
    CopyResults(pass);
    begin += pass.num_rows;
  }
}

bool Sampler::HasFixedSize(const SamplingArgs& args) {
  const ArraySizes sizes = SizesOf(args);
  return sizes.penalties + sizes.biases + sizes.masks == 0 &&
         std::none_of(args.rows, args.rows + args.num_rows, HasPenalty);
}

size_t Sampler::UploadBytes(const SamplingArgs& args, int num_rows) {
  return BytesOf(SizesOf(args), num_rows);
}

void Sampler::Prepare(const SamplingArgs& args, int num_rows, UploadArena* arena) {
  const ArraySizes sizes = SizesOf(args);
  Upload upload = {.rows = arena->Add<PackedSamplingRow>(num_rows),
                   .penalties = arena->Add<TokenPenalty>(sizes.penalties),
                   .biases = arena->Add<TokenBias>(sizes.biases),
                   .masks = arena->Add<int32_t>(sizes.masks)};
  if (is_masked_.size() < size_t(args.vocab_size)) is_masked_.resize(args.vocab_size);
  bool changes_logits = false;
  for (int i = 0; i < args.num_rows; ++i) {
    PackRow(args, i, &upload);
    changes_logits |= ChangesLogits(upload.rows.host[i]);
  }
  for (int i = args.num_rows; i < num_rows; ++i) upload.rows.host[i] = RowWithoutMeaning(args.vocab_size);

  num_blocks_ = std::min(num_rows, kBlocksPerMultiprocessor * device_->num_multiprocessors());
  prepared_ = {};
  prepared_.rows = upload.rows.device;
  prepared_.penalties = upload.penalties.device;
  prepared_.biases = upload.biases.device;
  prepared_.masks = upload.masks.device;
  prepared_.num_rows = num_rows;
  prepared_.vocab_size = args.vocab_size;
  prepared_.max_top = args.max_top;
  if (changes_logits) {
    prepared_.scratch_stride = ScratchStride(args.vocab_size);
    prepared_.scratch = scratch_.Reserve<float>(size_t(prepared_.scratch_stride) * num_blocks_);
  }
  prepared_.results = results_.Reserve<SamplingResult>(num_rows);
  prepared_.top = top_.Reserve<ScoredCandidate>(size_t(num_rows) * args.max_top);
  prepared_.drawn_tokens = drawn_tokens_.Reserve<int32_t>(1);
}

void Sampler::Launch(const float* logits) {
  prepared_.logits = logits;
  device_->Launch(kernels_->sampling, prepared_, num_blocks_);
}

void Sampler::CopyResults(const SamplingArgs& args) {
  device_->Copy(args.results, prepared_.results, sizeof(SamplingResult) * args.num_rows);
  device_->Copy(args.top, prepared_.top, sizeof(ScoredCandidate) * args.num_rows * args.max_top);
}

void Sampler::PackRow(const SamplingArgs& args, int index, Upload* upload) {
  const SamplingRow& row = args.rows[index];
  PackedSamplingRow packed = {};
  packed.pending_place = -1;
  packed.seed = row.seed;
  packed.position = row.position;
  packed.logit_row = args.logit_rows == nullptr ? index : args.logit_rows[index];
  packed.numbers = row;
  packed.numbers.xtc_probability = ExcludesTopChoices(row) ? 1 : 0;
  packed.log_min_p = row.min_p > 0 ? std::log(row.min_p) : -std::numeric_limits<float>::infinity();
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
