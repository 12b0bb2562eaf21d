// SPDX-License-Identifier: Apache-2.0

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "gtest/gtest.h"
#include "tests/random.h"

namespace quire::grammar {
namespace {

// A grammar as a table: a rule has alternatives, which are rows of the letters a and b and of rules, by their numbers.
using Row = std::vector<int>;
constexpr int kLetterA = -1;
constexpr int kLetterB = -2;
using Table = std::vector<std::vector<Row>>;

Table RandomTable(Random* random) {
  Table table(static_cast<size_t>(random->Between(1, 5)));
  for (std::vector<Row>& rule : table) {
    rule.resize(static_cast<size_t>(random->Between(1, 3)));
    for (Row& row : rule) {
      for (int i = random->Below(4); i > 0; --i) {
        row.push_back(random->Below(static_cast<int>(table.size()) + 3) - 2);
        if (row.back() == static_cast<int>(table.size())) row.back() = kLetterA;
      }
    }
  }
  return table;
}

std::string TextOf(const Table& table) {
  std::string text;
  for (size_t rule = 0; rule < table.size(); ++rule) {
    absl::StrAppend(&text, rule == 0 ? "root" : absl::StrCat("r", rule), " ::= ");
    for (size_t i = 0; i < table[rule].size(); ++i) {
      absl::StrAppend(&text, i > 0 ? " | \"\"" : "\"\"");
      for (const int item : table[rule][i]) {
        absl::StrAppend(&text, item == kLetterA   ? " \"a\""
                               : item == kLetterB ? " \"b\""
                               : item == 0        ? " root"
                                                  : absl::StrCat(" r", item));
      }
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// Finds where texts of rules can end: it tries all rules at all places until nothing new is found.
class Oracle {
 public:
  Oracle(const Table& table, std::string text) : table_(table), text_(std::move(text)) {}

  bool Matches() {
    while (FindMore()) {
    }
    return ends_[{0, 0}].contains(text_.size());
  }

 private:
  using Places = std::set<size_t>;

  bool FindMore() {
    bool has_found = false;
    for (size_t rule = 0; rule < table_.size(); ++rule) {
      for (size_t begin = 0; begin <= text_.size(); ++begin) {
        Places ends;
        for (const Row& row : table_[rule]) {
          Places at = {begin};
          for (const int item : row) at = Behind(item, at);
          ends.insert(at.begin(), at.end());
        }
        Places& known = ends_[{static_cast<int>(rule), begin}];
        has_found |= known != ends;
        known = std::move(ends);
      }
    }
    return has_found;
  }

  Places Behind(int item, const Places& begins) {
    Places ends;
    for (const size_t begin : begins) {
      if (item >= 0) {
        const Places& found = ends_[{item, begin}];
        ends.insert(found.begin(), found.end());
      } else if (begin < text_.size() && text_[begin] == (item == kLetterA ? 'a' : 'b')) {
        ends.insert(begin + 1);
      }
    }
    return ends;
  }

  const Table& table_;
  const std::string text_;
  std::map<std::pair<int, size_t>, Places> ends_;
};

TEST(RandomGrammarTest, MatchersAcceptExactlyTheTextsOfTheRules) {
  constexpr int kMaxLength = 6;
  int num_compiled = 0;
  int num_matches = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Random random(seed);
    const Table table = RandomTable(&random);
    const auto automaton = Compile({.kind = Source::Kind::kEbnf, .text = TextOf(table)});
    if (!automaton.ok()) continue;
    ++num_compiled;
    for (int length = 0; length <= kMaxLength; ++length) {
      for (int bits = 0; bits < 1 << length; ++bits) {
        std::string text;
        for (int i = 0; i < length; ++i) text += (bits >> i & 1) != 0 ? 'b' : 'a';
        Matcher matcher(*automaton);
        for (const char c : text) matcher.Accept(std::string(1, c));
        const bool matches = Oracle(table, text).Matches();
        ASSERT_EQ(matcher.can_end(), matches) << "\"" << text << "\" of seed " << seed << ":\n" << TextOf(table);
        num_matches += matches ? 1 : 0;
      }
    }
  }
  EXPECT_GT(num_compiled, 200);
  EXPECT_GT(num_matches, 500);
}

}  // namespace
}  // namespace quire::grammar
