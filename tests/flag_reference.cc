// SPDX-License-Identifier: Apache-2.0

#include "tests/flag_reference.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"*", "\\*"}, {"<", "&lt;"}});
}

// Returns the first sentence without its full stop. A leading "Required." is kept.
std::string FirstSentence(absl::string_view text) {
  const bool is_required = absl::ConsumePrefix(&text, "Required. ");
  absl::string_view sentence = text.substr(0, text.find(". "));
  absl::ConsumeSuffix(&sentence, ".");
  return absl::StrCat(is_required ? "Required. " : "", sentence);
}

std::string Row(const Setting& setting, bool is_short) {
  const std::string& value = setting.default_text;
  return absl::StrCat("| `", FlagAsTyped(setting.name), "` | ", value.empty() ? "" : absl::StrCat("`", value, "`"),
                      " | ", Escaped(is_short ? FirstSentence(setting.help) : setting.help), " |\n");
}

constexpr absl::string_view kHead = "| flag | default | meaning |\n|---|---|---|\n";

}  // namespace

std::string FlagTables(const Settings& settings) {
  std::string text;
  for (const SettingGroup& group : settings.groups) {
    absl::StrAppend(&text, "\n", Escaped(group.title), "\n\n", kHead);
    for (const Setting& setting : group.settings) absl::StrAppend(&text, Row(setting, false));
  }
  return absl::StrCat(text, "\n");
}

std::string ShortFlagTable(const Settings& settings, const std::vector<std::string>& names) {
  std::string text(kHead);
  for (const std::string& name : names) absl::StrAppend(&text, Row(*settings.Find(name), true));
  return text;
}

std::string MadeSection(const std::string& path, const std::string& section, const std::string& text) {
  const std::string file = SourcePath(path);
  std::ifstream in(file);
  std::string whole(std::istreambuf_iterator<char>(in), {});
  const std::string start = absl::StrCat("<!-- ", section, " -->\n");
  size_t begin = whole.find(start);
  if (begin == std::string::npos) return absl::StrCat(path, " has no line ", start);
  begin += start.size();
  const size_t end = whole.find("<!-- end -->", begin);
  if (end == std::string::npos) return absl::StrCat(path, " has no line <!-- end --> after ", start);
  if (std::getenv("QUIRE_UPDATE_GOLDEN") == nullptr) return whole.substr(begin, end - begin);
  std::ofstream(file) << whole.replace(begin, end - begin, text);
  return text;
}

}  // namespace quire
