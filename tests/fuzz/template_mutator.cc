// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/template_mutator.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace quire {
namespace {

template <size_t kSize>
std::string_view OneOf(const std::string_view (&texts)[kSize], Random* random) {
  return texts[static_cast<size_t>(random->Below(static_cast<int>(kSize)))];
}

// The variables are defined in chat_template_fuzz.cc.
std::string Expression(int depth, Random* random) {
  static constexpr std::string_view kAtoms[] = {"messages",
                                                "numbers",
                                                "words",
                                                "point",
                                                "people",
                                                "mixed",
                                                "text",
                                                "name",
                                                "lines",
                                                "half",
                                                "three",
                                                "none",
                                                "yes",
                                                "'a b'",
                                                "7",
                                                "x",
                                                "[1, 'x']",
                                                "{'k': 2}",
                                                "range(4)",
                                                "messages[-1].content",
                                                "tools",
                                                "people[0]['tags']",
                                                "point.y.z[1:]",
                                                "messages[0]['role']"};
  static constexpr std::string_view kFilters[] = {"tojson",
                                                  "tojson(indent=2)",
                                                  "length",
                                                  "list",
                                                  "join('-')",
                                                  "string",
                                                  "trim",
                                                  "upper",
                                                  "lower",
                                                  "title",
                                                  "capitalize",
                                                  "first",
                                                  "last",
                                                  "reverse | list",
                                                  "sort",
                                                  "unique | list",
                                                  "default('d')",
                                                  "default('d', true)",
                                                  "replace('a', 'b')",
                                                  "indent(2)",
                                                  "items | list",
                                                  "dictsort",
                                                  "map('string') | list",
                                                  "select | list",
                                                  "map(attribute='role') | list",
                                                  "selectattr('role', 'equalto', 'user') | list",
                                                  "rejectattr('age') | list",
                                                  "int",
                                                  "float",
                                                  "abs",
                                                  "round(1)",
                                                  "sum",
                                                  "min",
                                                  "max",
                                                  "safe",
                                                  "escape",
                                                  "batch(2) | list",
                                                  "groupby('age') | list"};
  static constexpr std::string_view kTests[] = {"defined", "none",          "string",   "mapping", "iterable", "number",
                                                "odd",     "not undefined", "sequence", "true",    "in [1, 7]"};
  static constexpr std::string_view kOperators[] = {" + ", " ~ ", " == ",     " and ", " or ", " in ", " < ",
                                                    " * ", " - ", " not in ", " != ",  " // ", " % "};
  static constexpr std::string_view kMethods[] = {".strip()",
                                                  ".split()",
                                                  ".upper()",
                                                  ".startswith('a')",
                                                  ".items()",
                                                  ".get('x')",
                                                  ".keys() | list",
                                                  ".rstrip('\n')",
                                                  ".replace('a', '')",
                                                  "[0]",
                                                  "[1:]",
                                                  "[::-1]",
                                                  ".x",
                                                  "['role']",
                                                  ".format(1)",
                                                  ".title()"};
  if (depth == 0) return std::string(OneOf(kAtoms, random));
  const std::string inner = Expression(depth - 1, random);
  switch (random->Below(7)) {
    case 0:
    case 1:
      return inner + " | " + std::string(OneOf(kFilters, random));
    case 2:
      return inner + " is " + std::string(OneOf(kTests, random));
    case 3:
      return "(" + inner + std::string(OneOf(kOperators, random)) + Expression(depth - 1, random) + ")";
    case 4:
      return inner + std::string(OneOf(kMethods, random));
    case 5:
      return "(" + inner + " if " + Expression(depth - 1, random) + " else 'e')";
    default:
      return inner;
  }
}

std::string Statement(int depth, Random* random) {
  const std::string expression = Expression(random->Between(0, 3), random);
  if (depth == 0) return "{{ " + expression + " }}\n";
  switch (random->Below(10)) {
    case 0:
      return "{%- if " + expression + " %}" + Statement(depth - 1, random) + "{% else %}" +
             Statement(depth - 1, random) + "{% endif %}\n";
    case 1:
      return "{% for x in " + expression + " -%}{{ loop.index }}" + Statement(depth - 1, random) + "{% endfor %}";
    case 2:
      return "{% for k, v in (point | items) if k != 'x' %}{{ k }}" + Statement(depth - 1, random) + "{% endfor %}";
    case 3:
      return "{% set x = " + expression + " %}" + Statement(depth - 1, random);
    case 4:
      return "{% set ns = namespace(a=" + expression + ") %}{% set ns.a = ns.a %}{{ ns.a }}";
    case 5:
      return "{% macro f(x, b=1) %}" + Statement(depth - 1, random) + "{% endmacro %}{{ f(" + expression + ") }}";
    case 6:
      return "{% set x %}" + Statement(depth - 1, random) + "{% endset %}{{ x | length }}";
    default:
      return "{{ " + expression + " }}\n";
  }
}

}  // namespace

std::string ChangedTemplate(std::string text, Random* random) {
  static constexpr std::string_view kPieces[] = {"{{ ",
                                                 " }}",
                                                 "{% ",
                                                 " %}",
                                                 "{%- ",
                                                 " -%}",
                                                 "{# ",
                                                 " #}",
                                                 "{% endfor %}",
                                                 "{% endif %}",
                                                 "{% else %}",
                                                 "{% for x in messages %}",
                                                 "{% for k, v in point | items recursive %}",
                                                 "{% if loop.last %}",
                                                 "{% elif yes %}",
                                                 "{% set ns = namespace(a=1) %}",
                                                 "{% set ns.a = ns.a + 1 %}",
                                                 "{% set x %}",
                                                 "{% endset %}",
                                                 "{% break %}",
                                                 "{% continue %}",
                                                 "{% macro m(a, b=2) %}",
                                                 "{% endmacro %}",
                                                 "{{ m(1, b=messages) }}",
                                                 "{% filter upper %}",
                                                 "{% endfilter %}",
                                                 "{% call m(1) %}",
                                                 "{% endcall %}",
                                                 "{% generation %}",
                                                 "{{ loop(x) }}",
                                                 " | tojson",
                                                 " | length",
                                                 " | map(attribute='role')",
                                                 " | selectattr('role', 'equalto', 'user')",
                                                 " | list",
                                                 " | join(', ')",
                                                 " | sort",
                                                 " | string",
                                                 " | replace('a', 'b')",
                                                 " | trim",
                                                 " | indent(3)",
                                                 " | default('x', true)",
                                                 " | reverse",
                                                 " | batch(2)",
                                                 ".split('x')",
                                                 ".strip()",
                                                 ".items()",
                                                 ".format(1)",
                                                 "[1:-1]",
                                                 "[::-1]",
                                                 "[0]",
                                                 " is defined",
                                                 " is none",
                                                 " not in ",
                                                 " and ",
                                                 " or ",
                                                 " if yes else ",
                                                 "range(9)",
                                                 "range(99999999)",
                                                 "messages",
                                                 "numbers * 99999",
                                                 "'%s' % 1",
                                                 "2 ** 63",
                                                 "1 // 0",
                                                 "-9223372036854775808",
                                                 "'\\u00e9'",
                                                 "(((((",
                                                 "[[[[[",
                                                 "))))"};
  static constexpr std::string_view kCharacters = "{}%#-+()[].,:|~*/<>='\"\\ \n019abinoxs_";
  const auto place = [&] { return static_cast<size_t>(random->Below(static_cast<int>(text.size()) + 1)); };
  const auto line = [&] {
    const size_t begin = text.rfind('\n', place()) + 1;  // 0 if there is none.
    return std::pair(begin, std::min(text.find('\n', begin), text.size()) - begin);
  };
  if (random->OneIn(2)) return text.insert(line().first, Statement(2, random));
  switch (random->Below(7)) {
    case 0: {
      std::string kept;
      for (int i = random->Between(1, 3); i > 0; --i) {
        const auto [begin, size] = line();
        kept += text.substr(begin, size) + (i > 1 ? "\n" : "");
      }
      return kept;
    }
    case 1: {
      const auto [begin, size] = line();
      return text.erase(begin, size);
    }
    case 2: {
      const auto [begin, size] = line();
      return text.insert(place(), text.substr(begin, size));
    }
    case 3:
    case 4:
      return text.insert(place(), OneOf(kPieces, random));
    case 5:
      return text.insert(place(), 1,
                         kCharacters[static_cast<size_t>(random->Below(static_cast<int>(kCharacters.size())))]);
    default:
      return text.erase(place(), static_cast<size_t>(random->Between(1, 6)));
  }
}

}  // namespace quire
