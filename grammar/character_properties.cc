// SPDX-License-Identifier: Apache-2.0

#include "grammar/character_properties.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace quire::grammar {
namespace {

struct Category {
  const char* short_name;
  const char* long_name;
  utf8proc_category_t first;
  utf8proc_category_t last;
};

// Groups of neighbouring categories, and the categories.
constexpr Category kCategories[] = {
    {"L", "Letter", UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO},
    {"LC", "Cased_Letter", UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LT},
    {"Lu", "Uppercase_Letter", UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LU},
    {"Ll", "Lowercase_Letter", UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LL},
    {"Lt", "Titlecase_Letter", UTF8PROC_CATEGORY_LT, UTF8PROC_CATEGORY_LT},
    {"Lm", "Modifier_Letter", UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LM},
    {"Lo", "Other_Letter", UTF8PROC_CATEGORY_LO, UTF8PROC_CATEGORY_LO},
    {"M", "Mark", UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME},
    {"Mn", "Nonspacing_Mark", UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN},
    {"Mc", "Spacing_Mark", UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_MC},
    {"Me", "Enclosing_Mark", UTF8PROC_CATEGORY_ME, UTF8PROC_CATEGORY_ME},
    {"N", "Number", UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO},
    {"Nd", "Decimal_Number", UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND},
    {"Nl", "Letter_Number", UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NL},
    {"No", "Other_Number", UTF8PROC_CATEGORY_NO, UTF8PROC_CATEGORY_NO},
    {"P", "Punctuation", UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO},
    {"Pc", "Connector_Punctuation", UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PC},
    {"Pd", "Dash_Punctuation", UTF8PROC_CATEGORY_PD, UTF8PROC_CATEGORY_PD},
    {"Ps", "Open_Punctuation", UTF8PROC_CATEGORY_PS, UTF8PROC_CATEGORY_PS},
    {"Pe", "Close_Punctuation", UTF8PROC_CATEGORY_PE, UTF8PROC_CATEGORY_PE},
    {"Pi", "Initial_Punctuation", UTF8PROC_CATEGORY_PI, UTF8PROC_CATEGORY_PI},
    {"Pf", "Final_Punctuation", UTF8PROC_CATEGORY_PF, UTF8PROC_CATEGORY_PF},
    {"Po", "Other_Punctuation", UTF8PROC_CATEGORY_PO, UTF8PROC_CATEGORY_PO},
    {"S", "Symbol", UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO},
    {"Sm", "Math_Symbol", UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SM},
    {"Sc", "Currency_Symbol", UTF8PROC_CATEGORY_SC, UTF8PROC_CATEGORY_SC},
    {"Sk", "Modifier_Symbol", UTF8PROC_CATEGORY_SK, UTF8PROC_CATEGORY_SK},
    {"So", "Other_Symbol", UTF8PROC_CATEGORY_SO, UTF8PROC_CATEGORY_SO},
    {"Z", "Separator", UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP},
    {"Zs", "Space_Separator", UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZS},
    {"Zl", "Line_Separator", UTF8PROC_CATEGORY_ZL, UTF8PROC_CATEGORY_ZL},
    {"Zp", "Paragraph_Separator", UTF8PROC_CATEGORY_ZP, UTF8PROC_CATEGORY_ZP},
    {"Cc", "Control", UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CC},
    {"Cf", "Format", UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CF},
};

// The ranges of each category.
const std::array<std::vector<CodePointRange>, 32>& RangesOfCategories() {
  static const auto* const ranges = [] {
    auto* lists = new std::array<std::vector<CodePointRange>, 32>;
    for (uint32_t c = 0; c <= kMaxCodePoint; ++c) {
      auto& list = (*lists)[static_cast<size_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)))];
      if (!list.empty() && list.back().last + 1 == c) {
        list.back().last = c;
      } else {
        list.push_back({c, c});
      }
    }
    return lists;
  }();
  return *ranges;
}

}  // namespace

std::optional<CodePointSet> CharactersWith(std::string_view property) {
  if (property == "Any") return CodePointSet::All();
  if (property == "ASCII") return CodePointSet({{0, 0x7F}});
  for (const std::string_view prefix : {"gc=", "General_Category="}) {
    if (property.starts_with(prefix)) property.remove_prefix(prefix.size());
  }
  for (const Category& category : kCategories) {
    if (property != category.short_name && property != category.long_name) continue;
    std::vector<CodePointRange> ranges;
    for (int i = category.first; i <= category.last; ++i) {
      const std::vector<CodePointRange>& more = RangesOfCategories()[static_cast<size_t>(i)];
      ranges.insert(ranges.end(), more.begin(), more.end());
    }
    return CodePointSet(std::move(ranges));
  }
  return std::nullopt;
}

}  // namespace quire::grammar
