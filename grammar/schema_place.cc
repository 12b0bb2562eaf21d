// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_place.h"

namespace quire::grammar {
namespace {

// Bounds the time for schemas that join many others. Parts from further ones have a place that the document lacks.
constexpr size_t kMaxOrigins = 16;
constexpr size_t kMaxShownBytes = 64;

}  // namespace

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

SchemaPlace SchemaPlace::Join(SchemaPlace first, const SchemaPlace& second) {
  for (const Origin& origin : second.origins_) {
    if (first.origins_.size() < kMaxOrigins) first.origins_.push_back(origin);
  }
  return first;
}

SchemaPlace SchemaPlace::Child(std::string_view key) const {
  SchemaPlace child;
  for (const Origin& origin : origins_) {
    if (origin.value == nullptr || !origin.value->is_object()) continue;
    const auto member = origin.value->find(std::string(key));
    if (member != origin.value->end()) child.origins_.push_back({&*member, origin.pointer + PointerPart(key)});
  }
  if (child.origins_.empty()) child.origins_.push_back({nullptr, pointer() + PointerPart(key)});
  return child;
}

SchemaPlace SchemaPlace::Child(size_t index) const {
  SchemaPlace child;
  for (const Origin& origin : origins_) {
    const bool has_element = origin.value != nullptr && origin.value->is_array() && index < origin.value->size();
    if (has_element) child.origins_.push_back({&(*origin.value)[index], absl::StrCat(origin.pointer, "/", index)});
  }
  if (child.origins_.empty()) child.origins_.push_back({nullptr, absl::StrCat(pointer(), "/", index)});
  return child;
}

std::string Shown(const SchemaJson& value) {
  std::string text = value.dump();
  if (text.size() <= kMaxShownBytes) return text;
  size_t size = kMaxShownBytes;
  while ((text[size] & 0xC0) == 0x80) --size;  // No character is cut.
  return text.substr(0, size) + "...";
}

}  // namespace quire::grammar
