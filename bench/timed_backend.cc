// SPDX-License-Identifier: Apache-2.0

#include "bench/timed_backend.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "bench/clocks.h"

namespace quire {
namespace {

// Adds the time from its construction to its destruction.
class Timer {
 public:
  Timer(Kernel kernel, KernelSeconds* seconds) : sum_(&(*seconds)[static_cast<int>(kernel)]), start_(WallSeconds()) {}
  ~Timer() { *sum_ += WallSeconds() - start_; }

 private:
  double* const sum_;
  const double start_;
};

}  // namespace

const char* Name(Kernel kernel) {
  switch (kernel) {
    case Kernel::kLinear:
      return "linear";
    case Kernel::kAttention:
      return "attention";
    case Kernel::kRopeAppend:
      return "rope_append";
    case Kernel::kRmsNorm:
      return "rms_norm";
    case Kernel::kGatedLinear:
      return "gated_linear";
    case Kernel::kExperts:
      return "experts";
    case Kernel::kSample:
      return "sample";
    case Kernel::kOther:
      return "other";
  }
  return "";
}

double Sum(const KernelSeconds& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

void TimedBackend::CopyToDevice(void* destination, const void* source, size_t bytes) {
  const Timer timer(Kernel::kOther, &seconds_);
  ForwardingBackend::CopyToDevice(destination, source, bytes);
}

void TimedBackend::CopyToHost(void* destination, const void* source, size_t bytes) {
  const Timer timer(Kernel::kOther, &seconds_);
  ForwardingBackend::CopyToHost(destination, source, bytes);
}

const BatchView* TimedBackend::PrepareBatch(const BatchView* views, int num_views, int max_tokens) {
  const Timer timer(Kernel::kOther, &seconds_);
  return ForwardingBackend::PrepareBatch(views, num_views, max_tokens);
}

void TimedBackend::Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, float scale, void* y) {
  const Timer timer(Kernel::kOther, &seconds_);
  ForwardingBackend::Embed(table, token_ids, num_tokens, scale, y);
}

void TimedBackend::Linear(const LinearArgs& args) {
  const Timer timer(Kernel::kLinear, &seconds_);
  ForwardingBackend::Linear(args);
}

void TimedBackend::GatedLinear(const GatedLinearArgs& args) {
  const Timer timer(Kernel::kGatedLinear, &seconds_);
  ForwardingBackend::GatedLinear(args);
}

void TimedBackend::Route(const RouteArgs& args) {
  const Timer timer(Kernel::kExperts, &seconds_);
  ForwardingBackend::Route(args);
}

double TimedBackend::TakeUsedExperts() {
  const auto used = static_cast<double>(std::exchange(used_experts_, 0));
  const int64_t calls = std::exchange(expert_calls_, 0);
  return calls == 0 ? 0 : used / static_cast<double>(calls);
}

void TimedBackend::ExpertMlp(const ExpertMlpArgs& args) {
  std::vector<bool> is_used(args.num_experts);
  for (int i = 0; i < args.num_tokens * args.top_k; ++i) is_used[args.experts[i]] = true;
  used_experts_ += std::count(is_used.begin(), is_used.end(), true);
  ++expert_calls_;
  const Timer timer(Kernel::kExperts, &seconds_);
  ForwardingBackend::ExpertMlp(args);
}

void TimedBackend::RmsNorm(const RmsNormArgs& args) {
  const Timer timer(Kernel::kRmsNorm, &seconds_);
  ForwardingBackend::RmsNorm(args);
}

void TimedBackend::RopeAppend(const RopeAppendArgs& args) {
  const Timer timer(Kernel::kRopeAppend, &seconds_);
  ForwardingBackend::RopeAppend(args);
}

void TimedBackend::Attention(const AttentionArgs& args) {
  const Timer timer(Kernel::kAttention, &seconds_);
  ForwardingBackend::Attention(args);
}

void TimedBackend::GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) {
  const Timer timer(Kernel::kOther, &seconds_);
  ForwardingBackend::GatherRows(x, rows, num_rows, dim, y);
}

void TimedBackend::CopyBlocks(const BlockCopyArgs& args) {
  const Timer timer(Kernel::kOther, &seconds_);
  ForwardingBackend::CopyBlocks(args);
}

void TimedBackend::SwapBlocks(const BlockSwapArgs& args) {
  const Timer timer(Kernel::kOther, &seconds_);
  ForwardingBackend::SwapBlocks(args);
}

void TimedBackend::Sample(const SamplingArgs& args) {
  const Timer timer(Kernel::kSample, &seconds_);
  ForwardingBackend::Sample(args);
}

}  // namespace quire
