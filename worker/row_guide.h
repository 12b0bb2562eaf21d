// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_ROW_GUIDE_H_
#define QUIRE_WORKER_ROW_GUIDE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "grammar/matcher.h"
#include "grammar/token_masks.h"
#include "worker/guide_budget.h"

namespace quire {

// What the rows of a worker share to find the tokens that may come next.
struct MaskMaker {
  grammar::TokenMasks masks;
  GuideBudget budget;
};

// A grammar, which rows may share. It is not compiled yet as long as it has neither a beginning nor an error.
struct RowGrammar {
  std::optional<grammar::Matcher> begin = std::nullopt;
  absl::Status error = absl::OkStatus();
  GuideBudget::Account account = {};

  bool is_compiled() const { return begin.has_value() || !error.ok(); }
};

// How far a row has come in the grammar that its output must follow. A copy is a fork. Rows share the masks, so all of
// them belong to the executor thread.
class RowGuide {
 public:
  RowGuide(std::shared_ptr<RowGrammar> grammar, std::shared_ptr<MaskMaker> maker)
      : grammar_(std::move(grammar)), maker_(std::move(maker)) {}

  // The row has this token. It is read at the next draw. REQUIRES: it is in the vocabulary.
  void Append(TokenId token);
  // Fills the words with the tokens that may come next, as TokenMasks does. If there is none, because the vocabulary
  // cannot continue the text or because the tokens so far do not follow the grammar, these are the end tokens. After an
  // error the words are of no use. UNAVAILABLE: the guide is not compiled yet, or the step has no work left. The next
  // step may try again. RESOURCE_EXHAUSTED: it takes too much work. INVALID_ARGUMENT: the guide does not compile.
  absl::Status FillMask(std::vector<uint32_t>* words);
  // Rows are served in this order: rows that take little time come first, and the guides of the others take turns.
  std::pair<bool, uint64_t> turn() const;

  const RowGrammar& grammar() const { return *grammar_; }

 private:
  // Returns how much work this draw may take now.
  int64_t Allowed() const;
  // Why the draw is not done, when there was too little work for it.
  absl::Status OutOfWork(const char* what) const;
  void Spend(int64_t work);
  absl::Status Read();
  absl::Status Fill(std::vector<uint32_t>* words);

  std::shared_ptr<RowGrammar> grammar_;
  std::shared_ptr<MaskMaker> maker_;
  std::optional<grammar::Matcher> matcher_;  // Behind the tokens that were read. Nothing before the first draw.
  std::vector<TokenId> unread_;
  size_t num_read_ = 0;      // The first tokens of unread_ that were read.
  int64_t work_ = 0;         // Of the current draw, or of the last one.
  bool is_drawing_ = false;  // A postponed draw continues.
  bool is_light_ = true;     // See GuideBudget::IsLight.
};

// The tokens that a row may draw, as the arrays of SamplingRow. One of them is empty.
struct GuidedTokens {
  std::vector<TokenId> allowed;
  std::vector<TokenId> masked;
};

// Returns the tokens of the mask that are in `allowed`, unless that is empty, and not in `masked`. If there is none,
// returns all tokens of the mask. `allowed` is sorted. The lists are the shorter way to say it.
GuidedTokens SelectTokens(absl::Span<const uint32_t> mask, int vocab_size, absl::Span<const TokenId> allowed,
                          absl::Span<const TokenId> masked);

}  // namespace quire

#endif  // QUIRE_WORKER_ROW_GUIDE_H_
