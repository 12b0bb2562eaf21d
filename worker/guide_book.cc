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
  auto table = std::make_shared<const grammar::TokenTable>(
      std::move(bytes), std::vector<TokenId>(vocabulary.end_token_ids().begin(), vocabulary.end_token_ids().end()));
  maker_ = std::make_shared<MaskMaker>(MaskMaker{.masks = grammar::TokenMasks(std::move(table))});
  vocabulary_ = std::move(serialized);
  return absl::OkStatus();
}

void GuideBook::BeginStep() {
  if (maker_ != nullptr) maker_->budget.BeginStep();
}

absl::StatusOr<RowGuide> GuideBook::Start(const v1::SequenceStart& start, absl::string_view path) {
  if (maker_ == nullptr) {
    return InvalidArgument(path, ".sampling.guided is set, but no plan had a vocabulary");
  }
  absl::StatusOr<std::shared_ptr<RowGrammar>> grammar = Compile(start.sampling());
  if (!grammar.ok()) return InvalidArgument(path, ".sampling.guided: ", grammar.status().message());
  RowGuide guide(*std::move(grammar), maker_);
  for (int i = static_cast<int>(start.prompt_length()); i < start.token_ids_size(); ++i) {
    guide.Append(static_cast<TokenId>(start.token_ids(i)));
  }
  return guide;
}

absl::StatusOr<std::shared_ptr<RowGrammar>> GuideBook::Compile(const v1::RowSampling& sampling) {
  const std::string& owner = sampling.guide_owner();
  std::string key = absl::StrCat(owner.size(), ",", owner, sampling.guided().SerializeAsString());
  const auto known =
      std::find_if(grammars_.begin(), grammars_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (known != grammars_.end()) {
    std::rotate(known, known + 1, grammars_.end());
    return grammars_.back().grammar;
  }
  auto grammar = std::make_shared<RowGrammar>();
  QUIRE_ASSIGN_OR_RETURN(grammar->automaton, grammar::Compile(grammar::SourceOf(sampling.guided()), owner));
  maker_->masks.Prepare(grammar->automaton);
  const size_t num_bytes = grammar->automaton->num_bytes();
  DropOldest(num_bytes);
  num_bytes_ += num_bytes;
  grammars_.push_back({std::move(key), grammar});
  return grammar;
}

void GuideBook::DropOldest(size_t num_bytes) {
  while (!grammars_.empty() && (grammars_.size() >= kMaxGrammars || num_bytes_ + num_bytes > kMaxGrammarBytes)) {
    num_bytes_ -= grammars_.front().grammar->automaton->num_bytes();
    grammars_.pop_front();
  }
}

}  // namespace quire
