// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/schema_document.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

// Members of a smaller object are found faster one after the other.
constexpr size_t kMinIndexed = 16;

}  // namespace

const Json* SchemaDocument::TargetOf(const Json& reference) {
  if (!reference.is_string()) return nullptr;
  absl::string_view rest = reference.get_ref<const std::string&>();
  if (!absl::ConsumePrefix(&rest, "#")) return nullptr;
  const Json* target = &root_;
  while (target != nullptr && !rest.empty()) {
    if (!absl::ConsumePrefix(&rest, "/")) return nullptr;
    const absl::string_view name = rest.substr(0, rest.find('/'));
    rest.remove_prefix(name.size());
    target = PartOf(*target, absl::StrReplaceAll(name, {{"~0", "~"}, {"~1", "/"}}));
  }
  return target;
}

const Json* SchemaDocument::PartOf(const Json& whole, absl::string_view name) {
  if (whole.is_object()) return MemberOf(whole, name);
  size_t index = 0;
  const bool is_entry = whole.is_array() && absl::SimpleAtoi(name, &index) && absl::StrCat(index) == name;
  return is_entry && index < whole.size() ? &whole[index] : nullptr;
}

const Json* SchemaDocument::MemberOf(const Json& object, absl::string_view name) {
  const auto& members = object.get_ref<const Json::object_t&>();
  if (members.size() < kMinIndexed) {
    for (const auto& [key, value] : members) {
      ++num_names_read_;
      if (key == name) return &value;
    }
    return nullptr;
  }
  const auto [index, is_new] = indices_.try_emplace(&object);
  if (is_new) {
    num_names_read_ += members.size();
    for (const auto& [key, value] : members) index->second.emplace(key, &value);
  }
  ++num_names_read_;
  const auto member = index->second.find(name);
  return member == index->second.end() ? nullptr : member->second;
}

const Json* SchemaDocument::SchemaWithProperties() {
  const Json* object = &root_;
  for (int i = 0; object != nullptr && object->is_object() && i < 10; ++i) {
    const Json* const properties = MemberOf(*object, "properties");
    if (properties != nullptr && properties->is_object()) return object;
    const Json* const reference = MemberOf(*object, "$ref");
    object = reference == nullptr ? nullptr : TargetOf(*reference);
  }
  return nullptr;
}

}  // namespace quire
