// SPDX-License-Identifier: Apache-2.0

// The text of users stays marked through every operation.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/jinja/json.h"
#include "kv_manager/jinja/template.h"

namespace quire::jinja {
namespace {

// The bytes of a text that come from a user, with "." for the others.
std::string Marked(const Text& text) {
  std::string marked(text.bytes.size(), '.');
  for (const Range& range : text.user) {
    marked.replace(range.begin, range.end - range.begin, text.bytes, range.begin, range.end - range.begin);
  }
  return marked;
}

std::string RenderMarked(const std::string& source) {
  const auto compiled = Template::Compile(source);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  const auto text = (*compiled)->Render({{"user", ParseJson(R"(" Ab\"c\nd ")", true).value()},
                                         {"message", ParseJson(R"({"k": "v", "list": ["x", "y"]})", true).value()},
                                         {"percent", ParseJson(R"("%%")", true).value()},
                                         {"other", Value("t")}},
                                        RenderOptions());
  EXPECT_TRUE(text.ok()) << source << ": " << text.status();
  return text.ok() ? Marked(*text) : "";
}

TEST(JinjaMarksTest, StringOperationsKeepTheMarks) {
  EXPECT_EQ(RenderMarked("<{{ user }}>"), ". Ab\"c\nd .");
  EXPECT_EQ(RenderMarked("{{ '<' + user + '>' }}{{ other }}"), ". Ab\"c\nd ..");
  EXPECT_EQ(RenderMarked("{{ '<' ~ user ~ 1 }}"), ". Ab\"c\nd .");
  EXPECT_EQ(RenderMarked("{{ user | trim }}{{ user.strip() }}"), "Ab\"c\ndAb\"c\nd");
  EXPECT_EQ(RenderMarked("{{ user | upper }}{{ user | lower }}{{ user | title }}"), " AB\"C\nD  ab\"c\nd  Ab\"c\nD ");
  EXPECT_EQ(RenderMarked("{{ user[1:3] }}{{ user[::-1] }}{{ user[2] }}"), "Ab d\nc\"bA b");
  EXPECT_EQ(RenderMarked("{{ user | replace('b', 'X') }}"), " A.\"c\nd ");
  EXPECT_EQ(RenderMarked("{{ 'a-b' | replace('-', user) }}"), ". Ab\"c\nd .");
  EXPECT_EQ(RenderMarked("{{ user.split('b') | join('+') }}"), " A.\"c\nd ");
  EXPECT_EQ(RenderMarked("{{ '%s!' % user }}{{ '{}!'.format(user) }}"), " Ab\"c\nd . Ab\"c\nd .");
  EXPECT_EQ(RenderMarked("{{ message | tojson }}"), "..k....v....list.....x....y...");
  EXPECT_EQ(RenderMarked("{{ user | tojson }}"), ". Ab\\\"c\\nd .");
  EXPECT_EQ(RenderMarked("{{ message }}"), "..k....v....list.....x....y...");
  EXPECT_EQ(RenderMarked("{{ user | indent(2) }}"), " Ab\"c...d ");
  EXPECT_EQ(RenderMarked("{{ user * 2 }}"), " Ab\"c\nd  Ab\"c\nd ");
  EXPECT_EQ(RenderMarked("{{ (user | safe) + '<' }}{{ user | e }}"), " Ab\"c\nd .... Ab&#34;c\nd ");
  EXPECT_EQ(RenderMarked("{% for c in user %}{{ c }}{% endfor %}"), " Ab\"c\nd ");
  EXPECT_EQ(RenderMarked("{% for k, v in message.items() %}<{{ k }}>{% endfor %}"), ".k..list.");
  EXPECT_EQ(RenderMarked("{% set x %}<{{ user }}>{% endset %}{{ x | trim }}"), ". Ab\"c\nd .");
  EXPECT_EQ(RenderMarked("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(user) | upper }}"), ". AB\"C\nD .");
  EXPECT_EQ(RenderMarked("{{ message.list | join(user) }}"), "x Ab\"c\nd y");
  EXPECT_EQ(RenderMarked("{{ message.list | map('upper') | join }}{{ user.splitlines()[0] }}"), "XY Ab\"c");
  EXPECT_EQ(RenderMarked("{{ user.center(12, '*') }}{{ user.partition('b')[2] }}"), ".. Ab\"c\nd ..\"c\nd ");
}

TEST(JinjaMarksTest, KeysKeepTheMarksAsNamesOfArguments) {
  EXPECT_EQ(RenderMarked("{% for k in dict(**message) %}<{{ k }}>{% endfor %}"), ".k..list.");
  EXPECT_EQ(RenderMarked("{% for k in dict(message, a=1, **{'b': 2}) %}<{{ k }}>{% endfor %}"),
            ".k..list." + std::string(6, '.'));
  EXPECT_EQ(RenderMarked("{% macro m() %}{% for k in kwargs %}<{{ k }}>{% endfor %}{% endmacro %}{{ m(**message) }}"),
            ".k..list.");
  EXPECT_EQ(RenderMarked("{% macro m(k) %}{{ k }}{{ kwargs.list[0] }}{% endmacro %}{{ m(**message) }}"), "vx");
}

TEST(JinjaMarksTest, FormatsAndSeparatorsOfAUserAreText) {
  // The options have no time.
  EXPECT_EQ(RenderMarked("{{ strftime_now(message.k) }}{{ strftime_now('x') }}"),
            "infinite-past" + std::string(13, '.'));
  EXPECT_EQ(RenderMarked("{{ percent % () }}{{ '%%' % () }}"), "%.");
  EXPECT_EQ(RenderMarked("{{ [1, 2] | tojson(separators=(message.k, other)) }}{{ {'a': 1} | tojson(separators=("
                         "other, message.k)) }}"),
            "..v......v..");
}

TEST(JinjaMarksTest, TheTextOfTheTemplateIsNotMarked) {
  EXPECT_EQ(RenderMarked("text{{ 'constant' }}{{ other }}{{ 1 }}{{ [other, 'x'] }}"), std::string(24, '.'));
}

}  // namespace
}  // namespace quire::jinja
