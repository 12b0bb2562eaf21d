// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMULATED_EXPECTED_TOKENS_H_
#define QUIRE_KERNELS_SIMULATED_EXPECTED_TOKENS_H_

#include <cstdint>
#include <vector>

#include "kernels/sampling.h"
#include "kernels/simulated/token_rule.h"

namespace quire::simulated {

// Returns the tokens that a simulated worker generates after `prompt`, computed from the tokens alone. Tests, and
// programs that send load, compare streams with it. The result has `max_tokens` tokens, or ends with an end token.
// `sampling` is used for every token; only its position is replaced. So it cannot have penalties, which count tokens.
std::vector<int32_t> ExpectedTokens(const TokenRule& rule, const std::vector<int32_t>& prompt, SamplingRow sampling,
                                    int max_tokens);

// The same for greedy decoding.
std::vector<int32_t> ExpectedTokens(const TokenRule& rule, const std::vector<int32_t>& prompt, int max_tokens);

}  // namespace quire::simulated

#endif  // QUIRE_KERNELS_SIMULATED_EXPECTED_TOKENS_H_
