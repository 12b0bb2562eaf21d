// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_annotations.h"

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grammar/schema_document.h"

namespace quire::grammar {
namespace {

constexpr std::array<std::string_view, 15> kDescriptions = {"$comment",
                                                            "title",
                                                            "description",
                                                            "markdownDescription",
                                                            "default",
                                                            "example",
                                                            "examples",
                                                            "deprecated",
                                                            "readOnly",
                                                            "writeOnly",
                                                            "summary",
                                                            "externalDocs",
                                                            "enumDescriptions",
                                                            "deprecationMessage",
                                                            "markdownEnumDescriptions"};
// Keywords whose values are maps of schemas. A value of another keyword is a schema, a list of schemas, or data.
constexpr std::array<std::string_view, 6> kMaps = {"properties",  "patternProperties", "$defs",
                                                   "definitions", "dependentSchemas",  "dependencies"};
constexpr std::array<std::string_view, 4> kData = {"enum", "const", "required", "dependentRequired"};

template <typename List>
bool Has(const List& list, std::string_view name) {
  for (const std::string_view one : list) {
    if (one == name) return true;
  }
  return false;
}

// Takes annotations out of a document, whose references were collected before.
class AnnotationRemover {
 public:
  explicit AnnotationRemover(const SchemaJson& root) { Collect(root); }

  void Clean(SchemaJson* schema) const {
    if (schema->is_array()) {
      for (SchemaJson& element : *schema) Clean(&element);
    }
    if (!schema->is_object()) return;
    for (auto member = schema->begin(); member != schema->end();) {
      const std::string& name = member.key();
      const bool is_description = Has(kDescriptions, name) || name.starts_with("x-");
      if (is_description && !absl::StrContains(references_, absl::StrCat("/", name))) {
        member = schema->erase(member);
        continue;
      }
      if (Has(kMaps, name) && member->is_object()) {
        for (auto& [key, value] : member->items()) Clean(&value);
      } else if (!Has(kData, name) && !is_description) {
        Clean(&*member);
      }
      ++member;
    }
  }

 private:
  void Collect(const SchemaJson& value) {
    for (const auto& [name, member] : value.items()) {
      if (name.ends_with("$ref") || name == "$dynamicRef") absl::StrAppend(&references_, member.dump(), "\n");
      if (member.is_structured()) Collect(member);
    }
  }

  std::string references_;
};

}  // namespace

std::string WithoutAnnotations(std::string_view schema) {
  std::string text(schema);
  SchemaJson root;
  if (ReadJson(schema, kSchemaLimits, &root).has_value() || !root.is_object()) return text;
  AnnotationRemover(root).Clean(&root);
  return root.dump();
}

}  // namespace quire::grammar
