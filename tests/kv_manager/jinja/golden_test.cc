// SPDX-License-Identifier: Apache-2.0

// Compares with what jinja2 renders, as tools/goldens/jinja_goldens.py has recorded it in tests/golden/jinja.

#include <openssl/sha.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/time/civil_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/jinja/json.h"
#include "kv_manager/jinja/template.h"
#include "tests/test_paths.h"

namespace quire::jinja {
namespace {

using nlohmann::ordered_json;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

ordered_json ReadGolden(const std::string& name) {
  return ordered_json::parse(ReadFile(SourcePath("tests/golden/jinja/" + name)));
}

// As the hashes in models.json.
std::string Hash(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), 8));
}

absl::StatusOr<Text> Render(const std::string& source, const ordered_json& variables) {
  auto compiled = Template::Compile(source);
  if (!compiled.ok()) return compiled.status();
  std::vector<std::pair<std::string, Value>> named;
  for (const auto& [name, value] : variables.items()) {
    named.emplace_back(name, ParseJson(value.dump(), /*from_user=*/true).value());
  }
  RenderOptions options;
  options.now = absl::FromCivil(absl::CivilSecond(2026, 7, 4, 13, 5, 9), absl::UTCTimeZone());
  return (*compiled)->Render(std::move(named), options);
}

TEST(JinjaGoldenTest, EveryConstructRendersAsInJinja2) {
  const ordered_json golden = ReadGolden("constructs.json");
  for (const auto& golden_case : golden["cases"]) {
    const std::string source = golden_case[0];
    const auto text = Render(source, golden["variables"]);
    if (golden_case[1].is_null()) {
      if (text.ok()) {
        ADD_FAILURE() << source << "\nrenders " << text->bytes << "\njinja2 raises an error";
      } else {
        EXPECT_EQ(text.status().message().substr(0, 5), "line ") << source << "\n" << text.status();
      }
      continue;
    }
    EXPECT_EQ(text.ok() ? text->bytes : text.status().ToString(), golden_case[1].get<std::string>()) << source;
  }
  EXPECT_GT(golden["cases"].size(), 250u);
}

TEST(JinjaGoldenTest, TheTemplatesOfPublicModelsRenderAsInTransformers) {
  const std::string folder = SourcePath("../shared/templates/");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const ordered_json conversations = ReadGolden("conversations.json");
  int num_rendered = 0;
  const ordered_json models = ReadGolden("models.json");
  for (const auto& [name, expected] : models.items()) {
    const std::string source = ReadFile(folder + name);
    if (Hash(source) != expected["source"].get<std::string>()) continue;
    for (size_t i = 0; i < conversations.size(); ++i) {
      const auto text = Render(source, conversations[i]["variables"]);
      const std::string found = text.ok() ? Hash(text->bytes) : "error";
      EXPECT_EQ(found, expected["rendered"][i].get<std::string>())
          << name << ", conversation \"" << conversations[i]["name"].get<std::string>() << "\" " << text.status();
      ++num_rendered;
    }
  }
  EXPECT_GE(num_rendered, 36 * 12);
}

}  // namespace
}  // namespace quire::jinja
