// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_TRIAL_GUIDES_H_
#define QUIRE_BENCH_TRIAL_GUIDES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "grammar/grammar.h"
#include "grammar/token_table.h"
#include "tests/random.h"

namespace quire {

struct NamedSource {
  std::string name;
  grammar::Source source;
};

// The guides that are measured: JSON objects, schemas of several sizes, a regular expression and a grammar.
std::vector<NamedSource> TrialGuides();

// Draws a token of the mask, or -1 if there is only an end. `mask` has a bit for each token.
TokenId DrawToken(const std::vector<uint32_t>& mask, const grammar::TokenTable& tokens, Random* random);

}  // namespace quire

#endif  // QUIRE_BENCH_TRIAL_GUIDES_H_
