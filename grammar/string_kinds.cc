// SPDX-License-Identifier: Apache-2.0

#include "grammar/string_kinds.h"

#include <cstdint>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "grammar/regex_parser.h"

namespace quire::grammar {
namespace {

// Both cases of a letter may be joined, and signs of ASCII.
KindGroups GroupsOfAscii(uint32_t c) {
  const auto byte = static_cast<unsigned char>(c);
  if (!absl::ascii_isalnum(byte)) return {"sign", "sign"};
  return {std::string(1, static_cast<char>(c)), std::string(1, absl::ascii_tolower(byte))};
}

}  // namespace

std::vector<ExprId> JoinGroups(const std::vector<ExprId>& kinds, size_t level, std::vector<KindGroups>* groups,
                               SyntaxTree* tree) {
  std::map<std::string, size_t> places;
  std::vector<std::vector<ExprId>> parts;
  std::vector<KindGroups> joined_groups;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto [place, is_new] = places.try_emplace((*groups)[i][level], parts.size());
    if (is_new) {
      parts.emplace_back();
      joined_groups.push_back((*groups)[i]);
    }
    parts[place->second].push_back(kinds[i]);
  }
  std::vector<ExprId> joined;
  for (std::vector<ExprId>& part : parts) joined.push_back(tree->Choice(std::move(part)));
  *groups = std::move(joined_groups);
  return joined;
}

const std::vector<FirstCharacter>& FirstCharacters() {
  static const auto* const sets = [] {
    auto* list = new std::vector<FirstCharacter>;
    list->push_back({CodePointSet({{0, 0x1F}}), {"sign", "sign"}});
    for (uint32_t c = 0x20; c < 0x7F; ++c) list->push_back({CodePointSet({{c, c}}), GroupsOfAscii(c)});
    list->push_back({CodePointSet({{0x7F, 0x7F}}), {"sign", "sign"}});
    const auto add = [list](uint32_t first, uint32_t end, uint32_t size, uint32_t group_size) {
      for (uint32_t c = first; c < end; c += size) {
        const std::string group = absl::StrCat(first, "+", (c - first) / group_size);
        list->push_back({CodePointSet({{c, c + size - 1}}), {group, absl::StrCat(first)}});
      }
    };
    add(0x80, 0x800, 0x40, 0x200);        // Alphabets of Europe and the Middle East.
    add(0x800, 0x2000, 0x200, 0x1800);    // Alphabets of South Asia.
    add(0x2000, 0x4000, 0x1000, 0x1000);  // Signs and kana.
    add(0x4000, 0xA000, 0x400, 0x1800);   // Chinese characters.
    add(0xA000, 0x10000, 0x1000, 0x6000);
    list->push_back({CodePointSet({{0x10000, kMaxCodePoint}}), {"long", "long"}});
    return list;
  }();
  return *sets;
}

StringKinds::StringKinds(const CharacterDfa& texts, ExprId end, SyntaxTree* tree) : tree_(tree) {
  for (const CharacterDfa::Continuation& one : texts.Continuations()) {
    const RuleId rule = tree_->AddRule("rest of a string", /*may_be_inlined=*/false);
    tree_->SetBody(rule, tree_->Sequence({one.rest.AddTo(RegexText::kJsonString, tree_), end}));
    rests_.emplace_back(one.first, rule);
  }
}

std::optional<ExprId> StringKinds::BeginningWith(const CodePointSet& first) const {
  std::vector<ExprId> parts;
  for (const auto& [characters, rest] : rests_) {
    const CodePointSet both = characters.Intersection(first);
    if (both.empty()) continue;
    parts.push_back(tree_->Sequence({Characters(both, RegexText::kJsonString, tree_), tree_->Use(rest)}));
  }
  return parts.empty() ? std::nullopt : std::optional(tree_->Choice(std::move(parts)));
}

}  // namespace quire::grammar
