// SPDX-License-Identifier: Apache-2.0

#include "base/config_file.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace quire {
namespace {

std::string At(const std::string& name, const YAML::Mark& mark) {
  return mark.line < 0 ? name : absl::StrCat(name, ":", mark.line + 1);
}

using Lines = std::vector<absl::string_view>;

Lines SplitLines(absl::string_view text) {
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");  // The parser does not count a byte order mark.
  return absl::StrSplit(text, '\n');
}

absl::string_view RestOfLine(const Lines& lines, const YAML::Mark& mark) {
  const auto line = static_cast<size_t>(mark.line);
  return line < lines.size() ? absl::ClippedSubstr(lines[line], static_cast<size_t>(mark.column)) : "";
}

// Returns whether the closing quote comes before the end of `text`, which starts after the opening one.
bool ClosesQuote(absl::string_view text, char quote) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = quote == '"' ? text[i] == '\\' : text.substr(i, 2) == "''";
    if (is_escape) {
      ++i;
    } else if (text[i] == quote) {
      return true;
    }
  }
  return false;
}

// Refuses a value that does not end in the line where it begins. The parser would join its lines, and where a closing
// quote is missing it takes the following keys for a part of the value.
absl::Status CheckIsOneLine(const std::string& name, const Lines& lines, const std::string& key,
                            const YAML::Node& value) {
  const YAML::Mark mark = value.Mark();
  absl::string_view rest = RestOfLine(lines, mark);
  while (absl::StartsWith(rest, "!") || absl::StartsWith(rest, "&")) {  // A tag or an anchor before the value.
    rest = absl::StripLeadingAsciiWhitespace(absl::ClippedSubstr(rest, rest.find_first_of(" \t\r")));
  }
  const char first = rest.empty() ? '\0' : rest[0];
  if (first == '"' || first == '\'') {
    if (ClosesQuote(rest.substr(1), first)) return absl::OkStatus();
    return InvalidArgument(At(name, mark), ": ", key, " has a quote that is not closed in the same line");
  }
  const bool is_block = first == '|' || first == '>';
  if (!is_block && absl::StartsWith(rest, value.Scalar())) return absl::OkStatus();
  return InvalidArgument(At(name, mark), ": ", key, " has a value of more than one line, it must be one line");
}

absl::StatusOr<ConfigEntry> ReadEntry(const std::string& name, const Lines& lines, const YAML::Node& key,
                                      const YAML::Node& value) {
  ConfigEntry entry;
  entry.key_at = At(name, key.Mark());
  if (!key.IsScalar()) return InvalidArgument(entry.key_at, ": a key must be a word");
  entry.key = key.Scalar();
  // The position of a value that is null is undefined.
  if (value.IsNull()) {
    return InvalidArgument(entry.key_at, ": ", entry.key, " has no value; nothing is written \"\", or [] for a list");
  }
  entry.value_at = At(name, value.Mark());
  if (value.IsScalar()) {
    QUIRE_RETURN_IF_ERROR(CheckIsOneLine(name, lines, entry.key, value));
    entry.values = {value.Scalar()};
    return entry;
  }
  if (!value.IsSequence())
    return InvalidArgument(entry.value_at, ": ", entry.key, " is a map, it must be a value or a list");
  entry.is_list = true;
  for (const YAML::Node& item : value) {
    if (!item.IsScalar()) {
      return InvalidArgument(At(name, item.Mark()), ": item ", entry.values.size() + 1, " of ", entry.key,
                             " is not a value");
    }
    QUIRE_RETURN_IF_ERROR(CheckIsOneLine(name, lines, entry.key, item));
    entry.values.push_back(item.Scalar());
  }
  return entry;
}

absl::StatusOr<std::vector<ConfigEntry>> ReadEntries(const std::string& name, const Lines& lines,
                                                     const YAML::Node& map) {
  std::vector<ConfigEntry> entries;
  for (const auto& pair : map) {
    QUIRE_ASSIGN_OR_RETURN(entries.emplace_back(), ReadEntry(name, lines, pair.first, pair.second));
  }
  return entries;
}

// Returns the map that the document is. Returns null if the document is empty.
absl::StatusOr<YAML::Node> ReadMap(const std::string& name, const std::string& text) {
  if (absl::StrContains(text, '\0')) return InvalidArgument(name, ": it is not text in UTF-8");
  const std::vector<YAML::Node> documents = YAML::LoadAll(text);
  if (documents.size() > 1) return InvalidArgument(name, ": it has ", documents.size(), " documents, it must be one");
  if (documents.empty() || documents[0].IsNull()) return YAML::Node();
  if (!documents[0].IsMap()) return InvalidArgument(At(name, documents[0].Mark()), ": it must be lines of key: value");
  return documents[0];
}

absl::StatusOr<std::vector<ConfigEntry>> ReadDocument(const std::string& name, const std::string& text) {
  QUIRE_ASSIGN_OR_RETURN(const YAML::Node map, ReadMap(name, text));
  return ReadEntries(name, SplitLines(text), map);
}

absl::StatusOr<std::vector<ConfigSection>> ReadSections(const std::string& name, const std::string& text) {
  std::vector<ConfigSection> sections;
  QUIRE_ASSIGN_OR_RETURN(const YAML::Node map, ReadMap(name, text));
  const Lines lines = SplitLines(text);
  std::map<std::string, std::string> given_at;
  for (const auto& pair : map) {
    ConfigSection& section = sections.emplace_back();
    section.name_at = At(name, pair.first.Mark());
    if (!pair.first.IsScalar()) return InvalidArgument(section.name_at, ": a name must be a word");
    section.name = pair.first.Scalar();
    if (!pair.second.IsMap()) {
      return InvalidArgument(section.name_at, ": '", section.name, "' must be followed by lines of key: value");
    }
    const auto [first, is_new] = given_at.emplace(section.name, section.name_at);
    if (!is_new) {
      return InvalidArgument(section.name_at, ": '", section.name, "' is given twice, first at ", first->second);
    }
    QUIRE_ASSIGN_OR_RETURN(section.entries, ReadEntries(name, lines, pair.second));
  }
  return sections;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return InvalidArgument(path, ": it cannot be read: ", std::strerror(errno));
  std::string text(kMaxConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return InvalidArgument(path, ": it cannot be read: ", std::strerror(errno));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxConfigBytes) return InvalidArgument(path, ": it has more than ", kMaxConfigBytes, " bytes");
  return text;
}

// The library throws exceptions. None of them leaves this function.
template <typename Read>
auto WithoutExceptions(const std::string& name, Read read) -> decltype(read()) {
  try {
    return read();
  } catch (const YAML::Exception& error) {
    const bool is_alias = absl::StrContains(error.msg, "anchor");  // "*" begins an alias in YAML.
    return InvalidArgument(At(name, error.mark), ": it is not YAML: ", error.msg,
                           is_alias ? "; write * in quotes" : "");
  }
}

template <typename Write>
std::string Line(absl::string_view key, const std::string& comment, Write write) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << std::string(key) << YAML::Value;
  write(out);
  out << YAML::Comment(comment) << YAML::EndMap;
  return absl::StrCat(out.c_str(), "\n");
}

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> ParseConfig(const std::string& name, const std::string& text) {
  return WithoutExceptions(name, [&] { return ReadDocument(name, text); });
}

absl::StatusOr<std::vector<ConfigSection>> ParseConfigSections(const std::string& name, const std::string& text) {
  return WithoutExceptions(name, [&] { return ReadSections(name, text); });
}

absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return ParseConfig(path, text);
}

absl::StatusOr<std::vector<ConfigSection>> ReadConfigSections(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return ParseConfigSections(path, text);
}

std::string ConfigLine(absl::string_view key, const std::string& value, bool is_text, const std::string& comment) {
  return Line(key, comment, [&](YAML::Emitter& out) {
    if (is_text) out << YAML::DoubleQuoted;
    out << value;
  });
}

std::string ConfigLine(absl::string_view key, const std::vector<std::string>& items, const std::string& comment) {
  return Line(key, comment, [&](YAML::Emitter& out) {
    out << YAML::Flow << YAML::BeginSeq;
    for (const std::string& item : items) out << YAML::DoubleQuoted << item;
    out << YAML::EndSeq;
  });
}

}  // namespace quire
