// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GRAMMAR_FILL_MASK_H_
#define QUIRE_TESTS_GRAMMAR_FILL_MASK_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/check.h"
#include "grammar/matcher.h"
#include "grammar/token_masks.h"

namespace quire::grammar {

// Fills the mask, whatever work it takes, and returns this work.
inline int64_t FillMask(const Matcher& matcher, TokenMasks* masks, std::vector<uint32_t>* mask) {
  constexpr int64_t kMuch = int64_t{1} << 40;
  int64_t left = kMuch;
  mask->resize(masks->num_words());
  QUIRE_CHECK(masks->Fill(matcher, absl::MakeSpan(*mask), &left));
  return kMuch - left;
}

// Makes all masks that Prepare makes.
inline void PrepareAll(const std::shared_ptr<const Automaton>& automaton, TokenMasks* masks) {
  TokenMasks::Preparation preparation;
  while (masks->Prepare(automaton, TokenMasks::kMaxPreparedWork, &preparation)) {
  }
}

}  // namespace quire::grammar

#endif  // QUIRE_TESTS_GRAMMAR_FILL_MASK_H_
