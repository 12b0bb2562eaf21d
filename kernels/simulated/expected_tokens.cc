// SPDX-License-Identifier: Apache-2.0

#include "kernels/simulated/expected_tokens.h"

#include <functional>

#include "kernels/cpu/backend.h"

namespace quire::simulated {
namespace {

std::vector<int32_t> Generate(const TokenRule& rule, const std::vector<int32_t>& prompt, int max_tokens,
                              const std::function<int32_t(uint64_t sum, int position)>& draw) {
  std::vector<int32_t> tokens;
  uint64_t sum = SumOf(prompt);
  int position = static_cast<int>(prompt.size());
  while (static_cast<int>(tokens.size()) < max_tokens) {
    const int32_t token = draw(sum, position);
    tokens.push_back(token);
    if (rule.IsEndToken(token)) break;
    sum = AddSlot(sum, SlotHash(sum, token, position), position);
    ++position;
  }
  return tokens;
}

}  // namespace

std::vector<int32_t> ExpectedTokens(const TokenRule& rule, const std::vector<int32_t>& prompt, int max_tokens) {
  return Generate(rule, prompt, max_tokens, [&](uint64_t sum, int /*position*/) { return rule.BestToken(sum); });
}

std::vector<int32_t> ExpectedTokens(const TokenRule& rule, const std::vector<int32_t>& prompt, SamplingRow sampling,
                                    int max_tokens) {
  cpu::CpuBackend sampler(/*num_threads=*/1, cpu::Isa::kGeneric);
  std::vector<float> logits(static_cast<size_t>(rule.vocab_size()));
  return Generate(rule, prompt, max_tokens, [&](uint64_t sum, int position) {
    rule.FillLogits(sum, logits.data());
    sampling.position = static_cast<uint32_t>(position);
    SamplingResult result;
    SamplingArgs args{};
    args.logits = logits.data();
    args.num_rows = 1;
    args.vocab_size = rule.vocab_size();
    args.rows = &sampling;
    args.results = &result;
    sampler.Sample(args);
    return result.token;
  });
}

}  // namespace quire::simulated
