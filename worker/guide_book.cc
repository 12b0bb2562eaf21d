// SPDX-License-Identifier: Apache-2.0

#include "worker/guide_book.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/guide_source.h"

namespace quire {
namespace {

constexpr std::chrono::microseconds kPatience = std::chrono::seconds(1);  // Then the thread looks again.
constexpr size_t kMaxUnprepared = 16;

}  // namespace

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
  const int num_nodes = table->trie().num_nodes();
  maker_ = std::make_shared<MaskMaker>(
      MaskMaker{.masks = grammar::TokenMasks(std::move(table)), .budget = GuideBudget(num_nodes)});
  vocabulary_ = std::move(serialized);
  return absl::OkStatus();
}

void GuideBook::BeginStep() {
  for (CompiledGuide& guide : compiler_.Take()) Take(std::move(guide));
  if (maker_ == nullptr) return;
  maker_->budget.BeginStep(may_postpone_);
  PrepareMasks();
}

void GuideBook::WaitForGuide(std::chrono::microseconds timeout) {
  for (CompiledGuide& guide : compiler_.Take(timeout)) Take(std::move(guide));
}

absl::StatusOr<RowGuide> GuideBook::Start(const v1::SequenceStart& start, absl::string_view path) {
  if (maker_ == nullptr) {
    return InvalidArgument(path, ".sampling.guided is set, but no plan had a vocabulary");
  }
  std::shared_ptr<RowGrammar> grammar = Find(start.sampling());
  if (!may_postpone_) {
    while (!grammar->is_compiled()) WaitForGuide(kPatience);
    if (!grammar->error.ok()) return InvalidArgument(path, ".sampling.guided: ", grammar->error.message());
  }
  RowGuide guide(std::move(grammar), maker_);
  for (int i = static_cast<int>(start.prompt_length()); i < start.token_ids_size(); ++i) {
    guide.Append(static_cast<TokenId>(start.token_ids(i)));
  }
  return guide;
}

std::shared_ptr<RowGrammar> GuideBook::Find(const v1::RowSampling& sampling) {
  const std::string& owner = sampling.guide_owner();
  std::string key = absl::StrCat(owner.size(), ",", owner, sampling.guided().SerializeAsString());
  const auto known =
      std::find_if(grammars_.begin(), grammars_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (known != grammars_.end()) {
    std::rotate(known, known + 1, grammars_.end());
    return grammars_.back().grammar;
  }
  if (compiling_.size() >= kMaxGrammars) DropUnwanted();
  std::weak_ptr<RowGrammar>& compiling = compiling_[key];
  if (std::shared_ptr<RowGrammar> grammar = compiling.lock(); grammar != nullptr) return grammar;
  auto grammar = std::make_shared<RowGrammar>();
  compiling = grammar;
  compiler_.Add({.key = std::move(key),
                 .owner = owner,
                 .source = grammar::SourceOf(sampling.guided()),
                 .max_token_bytes = maker_->masks.tokens().trie().max_depth(),
                 .user = grammar});
  return grammar;
}

void GuideBook::DropUnwanted() {
  absl::erase_if(compiling_, [](const auto& entry) { return entry.second.expired(); });
}

void GuideBook::Take(CompiledGuide guide) {
  DropUnwanted();
  const auto compiling = compiling_.find(guide.key);
  if (compiling == compiling_.end()) return;
  const std::shared_ptr<RowGrammar> grammar = compiling->second.lock();
  compiling_.erase(compiling);
  if (!guide.begin.ok()) {
    grammar->error = guide.begin.status();
    return;
  }
  grammar->begin = *std::move(guide.begin);
  const std::shared_ptr<const grammar::Automaton>& automaton = grammar->begin->automaton();
  if (guide.max_token_bytes == maker_->masks.tokens().trie().max_depth()) {  // The vocabulary is the same.
    maker_->masks.SetEqualStates(automaton, std::move(guide.equal_states));
  }
  if (unprepared_.size() < kMaxUnprepared) unprepared_.push_back({automaton, {}});
  const size_t num_bytes = automaton->num_bytes();
  DropOldest(num_bytes);
  num_bytes_ += num_bytes;
  grammars_.push_back({std::move(guide.key), grammar});
}

void GuideBook::PrepareMasks() {
  if (unprepared_.empty()) return;
  const std::shared_ptr<const grammar::Automaton> automaton = unprepared_.front().automaton.lock();
  const int64_t allowed = maker_->budget.AllowedAhead();
  if (allowed <= 0) return;
  if (automaton == nullptr || !maker_->masks.Prepare(automaton, allowed, &unprepared_.front().preparation)) {
    unprepared_.pop_front();
  }
  if (automaton != nullptr) maker_->budget.SpendAhead(allowed);
}

void GuideBook::DropOldest(size_t num_bytes) {
  while (!grammars_.empty() && (grammars_.size() >= kMaxGrammars || num_bytes_ + num_bytes > kMaxGrammarBytes)) {
    num_bytes_ -= grammars_.front().grammar->begin->automaton()->num_bytes();
    grammars_.pop_front();
  }
}

}  // namespace quire
