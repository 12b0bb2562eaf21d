// SPDX-License-Identifier: Apache-2.0

#include "grammar/json_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/utf8.h"
#include "grammar/code_points.h"
#include "grammar/long_repeat.h"
#include "grammar/number_text.h"

namespace quire::grammar {
namespace {

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
    const ExprId natural = tree_->Choice(
        {Literal("0"), tree_->Sequence({Digits('1', '9'), tree_->Repeat(digit, 0, kMaxNumberDigits - 1)})});
    const ExprId fraction = tree_->Sequence({Literal("."), tree_->Repeat(digit, 1, kMaxNumberDigits)});
    const ExprId exponent = tree_->Sequence(
        {tree_->Set(CharactersOf("eE")), tree_->Optional(tree_->Set(CharactersOf("+-"))), tree_->Repeat(digit, 1, 2)});
    return tree_->Sequence(
        {tree_->Optional(Literal("-")), natural, tree_->Optional(fraction), tree_->Optional(exponent)});
  });
}

ExprId JsonText::Integer() {
  return Shared(&integer_, "integer", [&] {
    const ExprId more = tree_->Repeat(Digits('0', '9'), 0, kMaxNumberDigits - 1);
    const ExprId natural = tree_->Sequence({Digits('1', '9'), more});
    return tree_->Choice({Literal("0"), natural, tree_->Sequence({Literal("-"), natural})});
  });
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
  return tree_->Sequence({Literal("\""), LongRepeat(character, min, max, tree_), Literal("\"")});
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

}  // namespace quire::grammar
