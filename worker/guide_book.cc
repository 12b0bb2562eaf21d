// SPDX-License-Identifier: Apache-2.0

#include "worker/guide_book.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/grammar.h"
#include "grammar/guide_source.h"

namespace quire {

absl::Status GuideBook::SetVocabulary(const v1::Vocabulary& vocabulary) {
  std::string serialized = vocabulary.SerializeAsString();
  if (serialized == vocabulary_) return absl::OkStatus();
  if (vocabulary.lengths_size() != vocab_size_) {
    return InvalidArgument("vocabulary.lengths has ", vocabulary.lengths_size(),
                           " entries, the model's vocabulary has ", vocab_size_, " tokens");
  }
  uint64_t sum = 0;
  for (const uint32_t length : vocabulary.lengths()) sum += length;
  if (sum != vocabulary.bytes().size()) {
    return InvalidArgument("vocabulary.lengths add up to ", sum, ", vocabulary.bytes has ", vocabulary.bytes().size(),
                           " bytes");
  }
  if (vocabulary.end_token_ids().empty()) return InvalidArgument("vocabulary.end_token_ids is empty");
  for (const uint32_t token : vocabulary.end_token_ids()) {
    if (token >= static_cast<uint32_t>(vocab_size_)) {
      return InvalidArgument("vocabulary.end_token_ids has ", token, ", the model's vocabulary has ", vocab_size_,
                             " tokens");
    }
  }
  std::vector<std::string> bytes;
  bytes.reserve(static_cast<size_t>(vocab_size_));
  size_t at = 0;
  for (const uint32_t length : vocabulary.lengths()) {
    bytes.push_back(vocabulary.bytes().substr(at, length));
    at += length;
  }
  masks_ = std::make_shared<grammar::TokenMasks>(std::make_shared<const grammar::TokenTable>(
      std::move(bytes), std::vector<TokenId>(vocabulary.end_token_ids().begin(), vocabulary.end_token_ids().end())));
  vocabulary_ = std::move(serialized);
  return absl::OkStatus();
}

absl::StatusOr<RowGuide> GuideBook::Start(const v1::SequenceStart& start, absl::string_view path) {
  if (masks_ == nullptr) {
    return InvalidArgument(path, ".sampling.guided is set, but no plan had a vocabulary");
  }
  absl::StatusOr<std::shared_ptr<const grammar::Automaton>> automaton = Compile(start.sampling().guided());
  if (!automaton.ok()) return InvalidArgument(path, ".sampling.guided: ", automaton.status().message());
  RowGuide guide(*std::move(automaton), masks_);
  for (int i = static_cast<int>(start.prompt_length()); i < start.token_ids_size(); ++i) {
    guide.Append(static_cast<TokenId>(start.token_ids(i)));
  }
  return guide;
}

absl::StatusOr<std::shared_ptr<const grammar::Automaton>> GuideBook::Compile(const v1::Guide& guide) {
  std::string serialized = guide.SerializeAsString();
  const auto known = std::find_if(grammars_.begin(), grammars_.end(),
                                  [&](const auto& grammar) { return grammar.first == serialized; });
  if (known != grammars_.end()) {
    std::rotate(known, known + 1, grammars_.end());
    return grammars_.back().second;
  }
  QUIRE_ASSIGN_OR_RETURN(std::shared_ptr<const grammar::Automaton> automaton,
                         grammar::Compile(grammar::SourceOf(guide)));
  masks_->Prepare(*automaton);
  if (grammars_.size() >= kMaxGrammars) grammars_.pop_front();
  grammars_.emplace_back(std::move(serialized), automaton);
  return automaton;
}

}  // namespace quire
