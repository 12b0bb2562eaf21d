// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_ROW_GUIDE_H_
#define QUIRE_WORKER_ROW_GUIDE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "grammar/automaton.h"
#include "grammar/matcher.h"
#include "grammar/token_masks.h"
#include "worker/guide_budget.h"

namespace quire {

// What the rows of a worker share to find the tokens that may come next.
struct MaskMaker {
  grammar::TokenMasks masks;
  GuideBudget budget = {};
};

// A grammar, which rows may share.
struct RowGrammar {
  std::shared_ptr<const grammar::Automaton> automaton;
  GuideBudget::Account account = {};
};

// Says how far a row has come in the grammar that its output must follow. A copy is a fork. Rows share the masks, so
// all of them belong to the executor thread.
class RowGuide {
 public:
  RowGuide(std::shared_ptr<RowGrammar> grammar, std::shared_ptr<MaskMaker> maker)
      : matcher_(grammar->automaton), grammar_(std::move(grammar)), maker_(std::move(maker)) {}

  // The row has this token. REQUIRES: it is in the vocabulary. If the work of the guide is used up, FillMask fails from
  // then on.
  void Append(TokenId token);
  // Fills the words with the tokens that may come next, as TokenMasks does. If there is none, because the vocabulary
  // cannot go on or because the tokens so far do not follow the grammar, these are the end tokens. RESOURCE_EXHAUSTED
  // when this takes too much work; then these are the end tokens as well.
  absl::Status FillMask(std::vector<uint32_t>* words) const;

  const RowGrammar& grammar() const { return *grammar_; }

 private:
  grammar::Matcher matcher_;
  std::shared_ptr<RowGrammar> grammar_;
  std::shared_ptr<MaskMaker> maker_;
  bool is_too_expensive_ = false;
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
