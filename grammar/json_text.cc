// SPDX-License-Identifier: Apache-2.0

#include "grammar/json_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "grammar/code_points.h"

namespace quire::grammar {
namespace {

constexpr uint64_t kLargestInteger = 999'999'999'999'999'999;  // 18 digits.
constexpr int kMaxIndent = 20;

// Characters that a JSON string may have as they are.
CodePointSet PlainCharacters() {
  return CodePointSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).Complement();
}

CodePointSet CharactersOf(std::string_view characters) {
  std::vector<CodePointRange> ranges;
  for (const char c : characters) ranges.push_back({static_cast<uint32_t>(c), static_cast<uint32_t>(c)});
  return CodePointSet(std::move(ranges));
}

}  // namespace

template <typename Body>
ExprId JsonText::Shared(RuleId* rule, const char* name, Body body) {
  if (*rule < 0) {
    *rule = tree_->AddRule(name, /*may_be_inlined=*/false);
    tree_->SetBody(*rule, body());
  }
  return tree_->Use(*rule);
}

ExprId JsonText::Space() {
  return Shared(&space_, "space", [&] {
    const ExprId indent = tree_->Repeat(tree_->Set(CharactersOf(" \t")), 0, kMaxIndent);
    return tree_->Choice({tree_->Empty(), Literal(" "), tree_->Sequence({Literal("\n"), indent})});
  });
}

ExprId JsonText::String() {
  return Shared(&string_, "string", [&] {
    const ExprId hex = tree_->Set(CodePointSet({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}));
    const ExprId lead = tree_->Set(CodePointSet({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}));
    const ExprId d = tree_->Set(CharactersOf("dD"));
    const ExprId below_surrogates = tree_->Sequence({d, Digits('0', '7'), hex, hex});
    const ExprId high = tree_->Sequence({d, tree_->Set(CharactersOf("89abAB")), hex, hex});
    const ExprId low = tree_->Sequence({Literal("\\u"), d, tree_->Set(CharactersOf("cdefCDEF")), hex, hex});
    const ExprId unit =
        tree_->Choice({tree_->Sequence({lead, hex, hex, hex}), below_surrogates, tree_->Sequence({high, low})});
    const ExprId escape = tree_->Sequence({Literal("\\"), tree_->Choice({tree_->Set(CharactersOf("\"\\/bfnrt")),
                                                                         tree_->Sequence({Literal("u"), unit})})});
    const ExprId character = tree_->Choice({tree_->Set(PlainCharacters()), escape});
    return tree_->Sequence({Literal("\""), tree_->Repeat(character, 0, kUnbounded), Literal("\"")});
  });
}

ExprId JsonText::Number() {
  return Shared(&number_, "number", [&] {
    const ExprId digit = Digits('0', '9');
    const ExprId natural =
        tree_->Choice({Literal("0"), tree_->Sequence({Digits('1', '9'), tree_->Repeat(digit, 0, 17)})});
    const ExprId fraction = tree_->Sequence({Literal("."), tree_->Repeat(digit, 1, 18)});
    const ExprId exponent = tree_->Sequence(
        {tree_->Set(CharactersOf("eE")), tree_->Optional(tree_->Set(CharactersOf("+-"))), tree_->Repeat(digit, 1, 2)});
    return tree_->Sequence(
        {tree_->Optional(Literal("-")), natural, tree_->Optional(fraction), tree_->Optional(exponent)});
  });
}

ExprId JsonText::Integer() {
  return Shared(&integer_, "integer", [&] { return IntegerBetween(std::nullopt, std::nullopt); });
}

ExprId JsonText::AnyValue() {
  if (value_ >= 0) return tree_->Use(value_);
  value_ = tree_->AddRule("value", /*may_be_inlined=*/false);
  const RuleId array = tree_->AddRule("array", /*may_be_inlined=*/false);
  const RuleId object = tree_->AddRule("object", /*may_be_inlined=*/false);
  const ExprId space = Space();
  const ExprId value = tree_->Use(value_);
  const ExprId comma = Literal(",");
  const auto list = [&](const char* open, ExprId item, const char* close) {
    const ExprId more = tree_->Repeat(tree_->Sequence({comma, space, item}), 0, kUnbounded);
    const ExprId items = tree_->Optional(tree_->Sequence({space, item, more}));
    return tree_->Sequence({Literal(open), items, space, Literal(close)});
  };
  tree_->SetBody(array, list("[", value, "]"));
  tree_->SetBody(object, list("{", tree_->Sequence({String(), Literal(":"), space, value}), "}"));
  tree_->SetBody(value_, tree_->Choice({tree_->Use(object), tree_->Use(array), String(), Number(), Literal("true"),
                                        Literal("false"), Literal("null")}));
  return tree_->Use(value_);
}

ExprId JsonText::StringOfLength(int min, int max) {
  const ExprId escape = tree_->Sequence({Literal("\\"), tree_->Set(CharactersOf("\"\\/bfnrt"))});
  const ExprId character = tree_->Choice({tree_->Set(PlainCharacters()), escape});
  return tree_->Sequence({Literal("\""), tree_->Repeat(character, min, max), Literal("\"")});
}

// A graph of the prefixes of the names. From each prefix, every character that no name has there leads to a node where
// all characters are possible.
ExprId JsonText::KeyExcept(const std::vector<std::string>& names) {
  const CodePointSet plain = PlainCharacters();
  struct Prefix {
    std::map<uint32_t, int> next;
    bool is_name = false;
  };
  std::vector<Prefix> prefixes(1);
  for (const std::string& name : names) {
    int at = 0;
    bool is_plain = true;
    for (size_t i = 0; i < name.size() && is_plain;) {
      const uint32_t c = DecodeUtf8(name, &i);
      is_plain = plain.Contains(c);
      const auto [entry, is_new] =
          prefixes[static_cast<size_t>(at)].next.try_emplace(c, static_cast<int>(prefixes.size()));
      at = entry->second;
      if (is_new) prefixes.emplace_back();
    }
    prefixes[static_cast<size_t>(at)].is_name |= is_plain;
  }
  const int other = static_cast<int>(prefixes.size());
  const int end = other + 1;
  std::vector<Expr::Edge> edges = {{other, other, tree_->Set(plain)}, {other, end, Literal("\"")}};
  for (int i = 0; i < other; ++i) {
    std::vector<CodePointRange> taken;
    for (const auto& [c, next] : prefixes[static_cast<size_t>(i)].next) {
      taken.push_back({c, c});
      const CodePointSet one = CodePointSet({{c, c}}).Intersection(plain);
      if (!one.empty()) edges.push_back({i, next, tree_->Set(one)});
    }
    edges.push_back({i, other, tree_->Set(plain.Intersection(CodePointSet(std::move(taken)).Complement()))});
    if (!prefixes[static_cast<size_t>(i)].is_name) edges.push_back({i, end, Literal("\"")});
  }
  return tree_->Sequence({Literal("\""), tree_->Graph(end + 1, std::move(edges))});
}

ExprId JsonText::IntegerBetween(std::optional<int64_t> low, std::optional<int64_t> high) {
  constexpr int64_t kLimit = static_cast<int64_t>(kLargestInteger);
  const int64_t from = std::max(low.value_or(-kLimit), -kLimit);
  const int64_t to = std::min(high.value_or(kLimit), kLimit);
  if (from > to) return tree_->Nothing();
  std::vector<ExprId> parts;
  if (to >= 0) parts.push_back(Naturals(static_cast<uint64_t>(std::max<int64_t>(from, 0)), static_cast<uint64_t>(to)));
  if (from < 0) {
    const uint64_t smallest = to < 0 ? static_cast<uint64_t>(-to) : 1;
    parts.push_back(tree_->Sequence({Literal("-"), Naturals(smallest, static_cast<uint64_t>(-from))}));
  }
  return tree_->Choice(std::move(parts));
}

ExprId JsonText::NumberBetween(std::optional<int64_t> low, std::optional<int64_t> high, std::optional<int64_t> first,
                               std::optional<int64_t> last) {
  constexpr int64_t kLimit = static_cast<int64_t>(kLargestInteger);
  const int64_t from = std::max(first.value_or(-kLimit), -kLimit);
  const int64_t to = std::min(last.value_or(kLimit), kLimit);
  // The last digit is not 0, so the number lies between two integers.
  const ExprId fraction = tree_->Sequence({Literal("."), tree_->Repeat(Digits('0', '9'), 0, 17), Digits('1', '9')});
  std::vector<ExprId> parts = {IntegerBetween(low, high)};
  if (std::max<int64_t>(from, 0) < to) {
    const uint64_t smallest = static_cast<uint64_t>(std::max<int64_t>(from, 0));
    parts.push_back(tree_->Sequence({Naturals(smallest, static_cast<uint64_t>(to - 1)), fraction}));
  }
  if (from < std::min<int64_t>(to, 0)) {
    const uint64_t smallest = static_cast<uint64_t>(-std::min<int64_t>(to, 0));
    parts.push_back(tree_->Sequence({Literal("-"), Naturals(smallest, static_cast<uint64_t>(-from - 1)), fraction}));
  }
  return tree_->Choice(std::move(parts));
}

ExprId JsonText::Naturals(uint64_t low, uint64_t high) {
  std::vector<ExprId> parts;
  while (true) {
    const std::string first = absl::StrCat(low);
    const std::string largest(first.size(), '9');
    const std::string last = std::min<uint64_t>(high, std::stoull(largest)) == high ? absl::StrCat(high) : largest;
    parts.push_back(DigitsBetween(first, last));
    if (last.size() != largest.size() || last != largest || absl::StrCat(high) == last) break;
    low = std::stoull(largest) + 1;
  }
  return tree_->Choice(std::move(parts));
}

ExprId JsonText::DigitsBetween(std::string_view low, std::string_view high) {
  if (low.empty()) return tree_->Empty();
  const int num_more = static_cast<int>(low.size()) - 1;
  if (low.find_first_not_of('0') == low.npos && high.find_first_not_of('9') == high.npos) {
    return tree_->Repeat(Digits('0', '9'), num_more + 1, num_more + 1);
  }
  const auto with_first = [&](char digit, std::string_view rest_low, std::string_view rest_high) {
    return tree_->Sequence({Literal(std::string(1, digit)), DigitsBetween(rest_low, rest_high)});
  };
  if (low[0] == high[0]) return with_first(low[0], low.substr(1), high.substr(1));
  const std::string zeros(static_cast<size_t>(num_more), '0');
  const std::string nines(static_cast<size_t>(num_more), '9');
  std::vector<ExprId> parts = {with_first(low[0], low.substr(1), nines), with_first(high[0], zeros, high.substr(1))};
  if (low[0] + 1 < high[0]) {
    parts.push_back(tree_->Sequence({Digits(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                                     tree_->Repeat(Digits('0', '9'), num_more, num_more)}));
  }
  return tree_->Choice(std::move(parts));
}

}  // namespace quire::grammar
