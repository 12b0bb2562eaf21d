// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/schema_document.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gateway/openai/parameter_types.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(SchemaDocumentTest, AReferenceMeansAPartOfTheDocument) {
  const Json root = Json::parse(R"({"$defs": {"a/b": 1, "c~d": [2, {"e": 3}], "": 4}})");
  SchemaDocument document(root);
  const auto target = [&](const char* reference) {
    const Json* const found = document.TargetOf(reference);
    return found == nullptr ? "nothing" : found->dump();
  };
  EXPECT_EQ(target("#"), root.dump());
  EXPECT_EQ(target("#/$defs/a~1b"), "1");
  EXPECT_EQ(target("#/$defs/c~0d/0"), "2");
  EXPECT_EQ(target("#/$defs/c~0d/1/e"), "3");
  EXPECT_EQ(target("#/$defs/"), "4");
  for (const char* const wrong : {"", "$defs", "#$defs", "#/", "#/$defs/c", "#/$defs/c~0d/2", "#/$defs/c~0d/01",
                                  "#/$defs/c~0d/-", "#/$defs/a~1b/0", "other#/$defs"}) {
    EXPECT_EQ(target(wrong), "nothing") << wrong;
  }
  EXPECT_EQ(document.TargetOf(Json(7)), nullptr);
}

// Returns how many names are read for the types of this number of properties. Each of them refers to a
// definition of its own.
size_t NamesReadFor(int num_properties) {
  Json properties = Json::object(), definitions = Json::object();
  for (int i = 0; i < num_properties; ++i) {
    const std::string name = absl::StrCat("d", i);
    definitions[name] = {{"anyOf", {{{"type", "integer"}}}}};
    properties[absl::StrCat("p", i)] = {{"$ref", "#/$defs/" + name}};
  }
  const Json root = {{"properties", properties}, {"$defs", definitions}};
  SchemaDocument document(root);
  SchemaTypes types;
  const ParameterTypes found = ParameterTypesOf(&document, &types);
  EXPECT_EQ(found.size(), num_properties);
  EXPECT_EQ(found.at(absl::StrCat("p", num_properties - 1)), kNumberType);
  return document.num_names_read();
}

TEST(SchemaDocumentTest, ReferencesTakeWorkInProportionToTheirNumber) {
  const size_t num_names = NamesReadFor(250);
  EXPECT_LE(num_names, 250u * 10);
  EXPECT_LE(NamesReadFor(2000), 8 * num_names);
}

}  // namespace
}  // namespace quire
