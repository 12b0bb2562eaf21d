// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_ROW_GUIDE_H_
#define QUIRE_WORKER_ROW_GUIDE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "grammar/matcher.h"
#include "grammar/token_masks.h"

namespace quire {

// Says how far a row has come in the grammar that its output must follow. A copy is a fork. Rows share the masks, so
// all of them belong to the executor thread.
class RowGuide {
 public:
  RowGuide(std::shared_ptr<const grammar::Automaton> automaton, std::shared_ptr<grammar::TokenMasks> masks)
      : matcher_(std::move(automaton)), masks_(std::move(masks)) {}

  // The row has this token. REQUIRES: it is in the vocabulary.
  void Append(TokenId token);
  // Fills the words with the tokens that may come next, as TokenMasks does. If there is none, because the vocabulary
  // cannot go on or because the tokens so far do not follow the grammar, these are the end tokens.
  void FillMask(std::vector<uint32_t>* words) const;

  // The grammar, which rows may share.
  const grammar::Automaton& automaton() const { return matcher_.automaton(); }

 private:
  grammar::Matcher matcher_;
  std::shared_ptr<grammar::TokenMasks> masks_;
};

// The tokens that a row may draw, as the arrays of SamplingRow. One of them is empty.
struct GuidedTokens {
  std::vector<TokenId> allowed;
  std::vector<TokenId> masked;
};

// Returns the tokens of the mask that are in `allowed`, unless that is empty, and not in `masked`. If there is none,
// returns those of the mask. `allowed` is sorted. The lists are the shorter way to say it.
GuidedTokens SelectTokens(absl::Span<const uint32_t> mask, int vocab_size, absl::Span<const TokenId> allowed,
                          absl::Span<const TokenId> masked);

}  // namespace quire

#endif  // QUIRE_WORKER_ROW_GUIDE_H_
