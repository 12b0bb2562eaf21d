// SPDX-License-Identifier: Apache-2.0

// A template can neither take the process down nor keep it busy.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/jinja/json.h"
#include "kv_manager/jinja/template.h"

namespace quire::jinja {
namespace {

using testing::HasSubstr;

std::string Repeated(std::string_view part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

// The message of the error that compiling or rendering gives.
std::string ErrorOf(const std::string& source) {
  const auto compiled = Template::Compile(source);
  if (!compiled.ok()) return std::string(compiled.status().message());
  const auto text = (*compiled)->Render({{"x", Value("x")}}, {.limits = {.max_steps = 200'000}});
  return text.ok() ? "" : std::string(text.status().message());
}

TEST(JinjaLimitsTest, DeepTemplatesAreRefusedWhenTheyAreCompiled) {
  constexpr int kDeep = 100'000;
  const auto refuses = HasSubstr("nested deeper than 100 levels");
  EXPECT_THAT(ErrorOf("{{ " + Repeated("(", kDeep)), refuses);
  EXPECT_THAT(ErrorOf("{{ " + Repeated("[", kDeep)), refuses);
  EXPECT_THAT(ErrorOf("{{ " + Repeated("{1:", kDeep)), refuses);
  EXPECT_THAT(ErrorOf("{{ " + Repeated("not ", kDeep) + "x }}"), refuses);
  EXPECT_THAT(ErrorOf("{{ " + Repeated("-", kDeep) + "1 }}"), refuses);
  EXPECT_THAT(ErrorOf("{{ x" + Repeated(" + x", kDeep) + " }}"), refuses);
  EXPECT_THAT(ErrorOf("{{ x" + Repeated(".x", kDeep) + " }}"), refuses);
  EXPECT_THAT(ErrorOf("{{ x" + Repeated("|trim", kDeep) + " }}"), refuses);
  EXPECT_THAT(ErrorOf("{{ x" + Repeated("()", kDeep) + " }}"), refuses);
  EXPECT_THAT(ErrorOf("{{ x" + Repeated("[x", kDeep)), refuses);
  EXPECT_THAT(ErrorOf("{{ x" + Repeated(" if x", kDeep) + " }}"), refuses);
  EXPECT_THAT(ErrorOf("{{ " + Repeated("x if x else ", kDeep / 2) + "x }}"), refuses);
  EXPECT_THAT(ErrorOf("{{ x" + Repeated(" and x", kDeep) + " }}"), refuses);
  EXPECT_THAT(ErrorOf(Repeated("{% if x %}", 50'000)), HasSubstr("tags are nested deeper than 50 levels"));
  EXPECT_THAT(ErrorOf(Repeated("{% for a in x %}", 50'000)), HasSubstr("tags are nested deeper than 50 levels"));
  EXPECT_EQ(ErrorOf("{% if x %}a" + Repeated("{% elif x %}b", kDeep / 2) + "{% endif %}"), "");
  EXPECT_THAT(ErrorOf(std::string(Template::kMaxSourceBytes + 1, 'x')),
              HasSubstr("1048577 bytes, the limit is 1048576"));
}

TEST(JinjaLimitsTest, EndlessWorkStops) {
  EXPECT_THAT(ErrorOf("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("nested deeper than"));
  EXPECT_THAT(ErrorOf("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}"),
              HasSubstr("more than 200000 steps"));
  EXPECT_THAT(ErrorOf("{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = n.l + n.l %}{% endfor %}"),
              HasSubstr("steps"));
  EXPECT_THAT(ErrorOf("{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}"
                      "{{ n.l == n.l + [] }}{{ n.l | tojson }}"),
              HasSubstr("more than 200000 steps"));
  EXPECT_THAT(ErrorOf("{{ [1] * 9000000000000000000 }}"), HasSubstr("more than"));
  EXPECT_THAT(ErrorOf("{{ range(100001) }}"), HasSubstr("100000 elements"));
  EXPECT_THAT(ErrorOf("{% for a in [x] recursive %}{{ loop([x]) }}{% endfor %}"), HasSubstr("nested deeper than"));
}

TEST(JinjaLimitsTest, LongTextsStop) {
  const auto refuses = HasSubstr("more than 4194304 bytes");
  EXPECT_THAT(ErrorOf("{{ 'abc' * 9000000000000000000 }}"), refuses);
  EXPECT_THAT(ErrorOf("{{ 'x'.ljust(9000000000000000000) }}"), refuses);
  EXPECT_THAT(ErrorOf("{% set n = namespace(t='ab') %}{% for i in range(60) %}{% set n.t = n.t + n.t %}{% endfor %}"),
              refuses);
  EXPECT_THAT(ErrorOf("{% for i in range(3000) %}{{ 'abc' * 1000 }}{% endfor %}"), refuses);
  EXPECT_THAT(ErrorOf("{% set t = 'a' * 4000 %}{{ t.replace('', t) }}"), refuses);
  EXPECT_THAT(ErrorOf("{% set t = 'a' * 4000 %}{{ t.replace('a', t) }}"), refuses);
  EXPECT_THAT(ErrorOf("{% set t = 'a' * 4000 %}{{ ([1] * 4000) | join(t) }}"), refuses);
}

TEST(JinjaLimitsTest, DeepValuesStop) {
  EXPECT_THAT(ErrorOf("{% set n = namespace(l=1) %}{% for i in range(5000) %}{% set n.l = [n.l] %}{% endfor %}"),
              HasSubstr("nested deeper than 100 levels"));
  EXPECT_FALSE(ParseJson(Repeated("[", 100'000), true).ok());
  EXPECT_FALSE(ParseJson(Repeated("{\"a\":", 100'000), true).ok());
}

TEST(JinjaLimitsTest, WhatIsKeptUntilTheEndCounts) {
  const auto refuses = HasSubstr("more than 200000 steps");
  EXPECT_THAT(ErrorOf("{% for i in range(20000) %}{% set n = namespace() %}{% endfor %}"), refuses);
  EXPECT_THAT(ErrorOf("{% for i in range(20000) %}{% macro m() %}{% endmacro %}{% endfor %}"), refuses);
  // A value that is undefined keeps its message.
  EXPECT_LT(ErrorOf("{% set k = 'a' * 1000000 %}{{ x[k].y }}").size(), 300u);
  EXPECT_LT(ErrorOf("{{ " + Repeated("a", 100'000) + ".y }}").size(), 300u);
}

TEST(JinjaLimitsTest, FillersAndIndentsAreShort) {
  EXPECT_EQ(ErrorOf("{{ 'x'.ljust(4000000, 'ab') }}"),
            "line 1: ljust(): the fill character must be one character, not 2");
  EXPECT_EQ(ErrorOf("{{ 'x'.ljust(4, '') }}"), "line 1: ljust(): the fill character must be one character, not 0");
  EXPECT_EQ(ErrorOf("{{ 'x'.center(4, '\u00e9') }}"), "");
  EXPECT_EQ(ErrorOf("{{ [1] | tojson(indent='ab' * 51) }}"),
            "line 1: filter 'tojson': the indent has 102 bytes, at most 100 are allowed");
}

// With the search of std::string each of these takes minutes.
TEST(JinjaLimitsTest, SearchesAreShortForEveryText) {
  const std::string texts =
      "{% set x = 'a' * 3000000 %}{% set y = 'a' * 1500000 ~ 'b' %}{% set z = 'b' ~ 'a' * 1500000 %}";
  for (const char* search : {"x.find(y)", "x.rfind(y)", "x.count(y)", "x.split(y)", "x.rsplit(y)", "x.replace(y, '')",
                             "x.partition(y)", "x.rpartition(y)", "y in x", "x.rfind(z)"}) {
    EXPECT_EQ(ErrorOf(texts + "{% set found = " + search + " %}").find("line 1"), std::string::npos) << search;
  }
}

TEST(JsonLimitsTest, AnIntegerKeepsItsDigits) {
  Budget budget{RenderLimits()};
  const std::string digits = "-" + Repeated("1234567890", 30);
  const auto value = ParseJson(digits, /*from_user=*/true);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(ToJson(*value, JsonStyle(), &budget)->bytes, digits);
  EXPECT_FALSE(ParseJson(Repeated("1234567890", 31), true).ok());
}

TEST(JinjaLimitsTest, JsonHasNotTooManyValues) {
  EXPECT_TRUE(ParseJson("[" + Repeated("0,", 50'000) + "0]", true).ok());
  EXPECT_EQ(ParseJson("[" + Repeated("{},", 100'000) + "0]", true).status().message(),
            "has too many JSON values: at most 100000 are allowed in all");
}

TEST(JinjaLimitsTest, ValuesThatReferToThemselvesAreFreed) {
  // The address sanitizer finds what is not freed.
  EXPECT_EQ(ErrorOf("{% set n = namespace() %}{% set n.n = n %}"), "");
  EXPECT_EQ(ErrorOf("{% set n = namespace() %}{% macro m() %}{{ n }}{% endmacro %}{% set n.m = m %}"), "");
  EXPECT_EQ(ErrorOf("{% set n = namespace() %}{% for a in [1] recursive %}{% set n.l = loop %}{% endfor %}"), "");
}

TEST(JinjaLimitsTest, ErrorsNameTheLineAndTheConstruct) {
  EXPECT_EQ(ErrorOf("a\n{{ x | nope }}"), "line 2: there is no filter 'nope'");
  EXPECT_EQ(ErrorOf("a\n\n{% include 'b' %}"), "line 3: the tag {% include %} is not supported");
  EXPECT_EQ(ErrorOf("{% if x %}\n\n{% for a in x %}"), "line 3: {% for %} is not closed by {% endfor %}");
  EXPECT_EQ(ErrorOf("a\n{{ missing.x }}"), "line 2: '.x': 'missing' is undefined");
  EXPECT_EQ(ErrorOf("a\n{{ raise_exception('No tools') }}"), "line 2: raise_exception(): No tools");
  EXPECT_EQ(ErrorOf("{{ x\n | int(base=2) }}"), "line 2: filter 'int': the base 2 is not supported");
}

}  // namespace
}  // namespace quire::jinja
