#include "base/config_file.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

std::string At(const std::string& name, const YAML::Mark& mark) {
  return mark.line < 0 ? name : absl::StrCat(name, ":", mark.line + 1);
}

absl::StatusOr<ConfigEntry> ReadEntry(const std::string& name, const YAML::Node& key, const YAML::Node& value) {
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
    entry.values.push_back(item.Scalar());
  }
  return entry;
}

absl::StatusOr<std::vector<ConfigEntry>> ReadDocument(const std::string& name, const std::string& text) {
  std::vector<ConfigEntry> entries;
  const std::vector<YAML::Node> documents = YAML::LoadAll(text);
  if (documents.size() > 1) return InvalidArgument(name, ": it has ", documents.size(), " documents, it must be one");
  if (documents.empty() || documents[0].IsNull()) return entries;
  if (!documents[0].IsMap()) return InvalidArgument(At(name, documents[0].Mark()), ": it must be lines of key: value");
  for (const auto& pair : documents[0]) {
    QUIRE_ASSIGN_OR_RETURN(entries.emplace_back(), ReadEntry(name, pair.first, pair.second));
  }
  return entries;
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
  // The library throws exceptions. None of them leaves this function.
  try {
    return ReadDocument(name, text);
  } catch (const YAML::Exception& error) {
    return InvalidArgument(At(name, error.mark), ": it is not YAML: ", error.msg);
  }
}

absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return InvalidArgument(path, ": it cannot be read: ", std::strerror(errno));
  std::string text(kMaxConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return InvalidArgument(path, ": it cannot be read: ", std::strerror(errno));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxConfigBytes) return InvalidArgument(path, ": it has more than ", kMaxConfigBytes, " bytes");
  return ParseConfig(path, text);
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
