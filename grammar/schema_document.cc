// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_document.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/utf8.h"
#include "grammar/schema_keywords.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxShownBytes = 64;

std::string PointerPart(std::string_view key) {
  std::string part = "/";
  for (const char c : key) {
    if (c == '~') {
      part += "~0";
    } else if (c == '/') {
      part += "~1";
    } else {
      part += c;
    }
  }
  return part;
}

std::string PercentDecoded(std::string_view part) {
  std::string bytes;
  for (size_t i = 0; i < part.size(); ++i) {
    uint32_t code = 0;
    if (part[i] == '%' && i + 2 < part.size() && absl::SimpleHexAtoi(std::string(part.substr(i + 1, 2)), &code)) {
      bytes += static_cast<char>(code);
      i += 2;
    } else {
      bytes += part[i];
    }
  }
  return bytes;
}

std::string PointerDecoded(std::string_view part) {
  std::string key;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '~' && i + 1 < part.size()) {
      key += part[++i] == '1' ? '/' : '~';
    } else {
      key += part[i];
    }
  }
  return key;
}

// Returns the length of the scheme of an URI with the colon behind it, or 0.
size_t SchemeLength(std::string_view uri) {
  const size_t colon = uri.find_first_of(":/?#");
  return colon != uri.npos && colon > 0 && uri[colon] == ':' ? colon + 1 : 0;
}

// Removes "." and ".." from a path (RFC 3986, section 5.2.4).
std::string WithoutDots(const std::string& path) {
  std::vector<std::string> kept;
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_last = i + 1 == parts.size();
    if (parts[i] != "." && parts[i] != "..") {
      kept.push_back(parts[i]);
      continue;
    }
    // The empty part before the first slash stays.
    if (parts[i] == ".." && (kept.size() > 1 || (kept.size() == 1 && !kept[0].empty()))) kept.pop_back();
    if (is_last) kept.emplace_back();
  }
  return absl::StrJoin(kept, "/");
}

// Resolves a reference without a fragment (RFC 3986, section 5.2).
std::string JoinUri(const std::string& base, const std::string& reference) {
  if (reference.empty()) return base;
  if (SchemeLength(reference) > 0 || base.empty()) return reference;
  const size_t scheme = SchemeLength(base);
  if (absl::StartsWith(reference, "//")) return base.substr(0, scheme) + reference;
  const bool has_authority = base.substr(scheme).starts_with("//");
  const size_t path = has_authority ? std::min(base.find('/', scheme + 2), base.size()) : scheme;
  if (reference[0] == '/') return base.substr(0, path) + WithoutDots(reference);
  const size_t last = base.rfind('/');
  const size_t kept = last == base.npos || last < path ? path : last + 1;
  return base.substr(0, path) + WithoutDots(base.substr(path, kept - path) + reference);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SchemaDocument>> SchemaDocument::Parse(std::string_view text) {
  QUIRE_RETURN_IF_ERROR(CheckUtf8(text, "the schema"));
  std::unique_ptr<SchemaDocument> document(new SchemaDocument);
  if (const auto fault = ReadJson(text, kSchemaLimits, &document->root_)) {
    if (fault->wrong_byte.has_value()) return ErrorAtByte(text, *fault->wrong_byte, "the schema is not valid JSON");
    return absl::InvalidArgumentError(absl::StrCat("the schema ", fault->reason));
  }
  const SchemaJson& root = document->root_;
  if (root.is_object() && root.contains("$schema") && root["$schema"].is_string()) {
    const std::string& dialect = root["$schema"].get_ref<const std::string&>();
    document->ignores_siblings_of_ref_ = absl::StrContains(dialect, "draft-0");
    document->is_of_draft_4_ = absl::StrContains(dialect, "draft-04");
  }
  document->resources_.push_back({"", &root});
  document->Index(root, {nullptr, "", 0}, /*is_schema=*/true);
  return document;
}

size_t SchemaDocument::ResourceOf(const SchemaJson& schema, size_t outer) {
  size_t resource = outer;
  const auto id = schema.find(is_of_draft_4_ ? "id" : "$id");
  if (id != schema.end() && id->is_string()) {
    const auto& name = id->get_ref<const std::string&>();
    std::string uri = JoinUri(resources_[outer].uri, name);
    uri.erase(std::min(uri.find('#'), uri.size()));
    if (&schema == &root_) {
      resources_[0].uri = std::move(uri);
    } else if (!name.starts_with('#')) {
      resource = resources_.size();
      resources_.push_back({std::move(uri), &schema});
    }
  }
  // The drafts before 2019-09 have no "$anchor".
  if (ignores_siblings_of_ref_ && id != schema.end() && id->is_string()) {
    const auto& name = id->get_ref<const std::string&>();
    if (name.starts_with('#')) resources_[resource].anchors.emplace(name.substr(1), &schema);
  }
  for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
    const auto anchor = schema.find(keyword);
    if (anchor == schema.end() || !anchor->is_string()) continue;
    resources_[resource].anchors.emplace(anchor->get<std::string>(), &schema);
    if (keyword == std::string_view("$dynamicAnchor")) {
      resources_[resource].dynamic_anchors.emplace(anchor->get<std::string>(), &schema);
    }
  }
  return resource;
}

void SchemaDocument::Index(const SchemaJson& value, Parent parent, bool is_schema) {
  if (is_schema && value.is_object()) parent.resource = ResourceOf(value, parent.resource);
  const size_t resource = parent.resource;
  parents_.emplace(&value, std::move(parent));
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) Index(value[i], {&value, std::to_string(i), resource}, is_schema);
  }
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.items()) {
    const Parent at{&value, key, resource};
    if (is_schema && IsMapOfSchemas(key) && member.is_object()) {
      parents_.emplace(&member, at);
      for (const auto& [name, schema] : member.items()) Index(schema, {&member, name, resource}, /*is_schema=*/true);
    } else {
      Index(member, at, is_schema && HasSchemas(key));
    }
  }
}

std::string SchemaDocument::PlaceOf(const SchemaJson& value) const {
  std::string pointer;
  for (auto at = parents_.find(&value); at != parents_.end() && at->second.value != nullptr;
       at = parents_.find(at->second.value)) {
    // A part that was made has an origin and no key.
    if (!at->second.key.empty() || at->second.value->contains("")) pointer = PointerPart(at->second.key) + pointer;
  }
  return "#" + pointer;
}

const SchemaJson& SchemaDocument::Make(SchemaJson schema, const SchemaJson& origin) {
  const SchemaJson& made = *made_.emplace_back(std::make_unique<SchemaJson>(std::move(schema)));
  const auto known = parents_.find(&origin);
  const size_t resource = known == parents_.end() ? 0 : known->second.resource;
  std::vector<const SchemaJson*> parts = {&made};
  for (size_t i = 0; i < parts.size(); ++i) {
    parents_[parts[i]] = {&origin, "", resource};
    if (!parts[i]->is_structured()) continue;
    for (const SchemaJson& part : *parts[i]) parts.push_back(&part);
  }
  return made;
}

// Returns null when the resource lacks it.
const SchemaJson* SchemaDocument::Named(const Resource& resource, const std::string& fragment) const {
  if (fragment.empty()) return resource.root;
  if (fragment[0] != '/') {
    const auto anchor = resource.anchors.find(fragment);
    return anchor == resource.anchors.end() ? nullptr : anchor->second;
  }
  const SchemaJson* value = resource.root;
  const std::vector<std::string> parts = absl::StrSplit(fragment.substr(1), '/');
  for (const std::string& part : parts) {
    const std::string key = PointerDecoded(part);
    size_t index = 0;
    if (value->is_object() && value->contains(key)) {
      value = &(*value)[key];
    } else if (value->is_array() && absl::SimpleAtoi(key, &index) && index < value->size()) {
      value = &(*value)[index];
    } else {
      return nullptr;
    }
  }
  return value;
}

absl::StatusOr<const SchemaJson*> SchemaDocument::Resolve(const SchemaJson& schema, const std::string& keyword) const {
  const SchemaJson& reference = schema[keyword];
  if (!reference.is_string()) return KeywordError(*this, schema, keyword, ", it must be a string");
  const std::string& text = reference.get_ref<const std::string&>();
  const size_t hash = std::min(text.find('#'), text.size());
  const std::string fragment = PercentDecoded(std::string_view(text).substr(std::min(hash + 1, text.size())));
  const auto at = parents_.find(&schema);
  const std::string uri = JoinUri(resources_[at == parents_.end() ? 0 : at->second.resource].uri, text.substr(0, hash));
  const auto resource =
      std::find_if(resources_.begin(), resources_.end(), [&](const Resource& one) { return one.uri == uri; });
  if (resource == resources_.end()) {
    return KeywordError(*this, schema, keyword, ", which is in another document, and others are not read");
  }
  const SchemaJson* const target = Named(*resource, fragment);
  if (target == nullptr) return KeywordError(*this, schema, keyword, ", which the document does not have");
  if (keyword != "$dynamicRef" || !resource->dynamic_anchors.contains(fragment)) return target;
  // The anchor of the outermost schema on the way to a reference counts, and the way begins at the root.
  const auto of_root = resources_[0].dynamic_anchors.find(fragment);
  if (of_root != resources_[0].dynamic_anchors.end()) return of_root->second;
  const auto has_anchor = [&](const Resource& one) { return one.dynamic_anchors.contains(fragment); };
  if (std::count_if(resources_.begin(), resources_.end(), has_anchor) == 1) return target;
  return KeywordError(*this, schema, keyword, ", and is supported only where one schema has this \"$dynamicAnchor\"");
}

std::string Shown(const SchemaJson& value) {
  std::string text = value.dump();
  if (text.size() <= kMaxShownBytes) return text;
  size_t size = kMaxShownBytes;
  while ((text[size] & 0xC0) == 0x80) --size;  // No character is cut.
  return text.substr(0, size) + "...";
}

}  // namespace quire::grammar
