// SPDX-License-Identifier: Apache-2.0

// Compares the prompts of whole requests with the prompts of Transformers' apply_chat_template, as
// tools/goldens/chat_goldens.py has recorded them in tests/golden/jinja.

#include <openssl/sha.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/gateway/openai/chat_rendering.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Json ReadGolden(const std::string& name) {
  return Json::parse(ReadFile(SourcePath("tests/golden/jinja/" + name)));
}

// As the hashes in chat_models.json.
std::string Hash(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), 8));
}

// What the golden file has for a rendering.
std::string Outcome(const absl::StatusOr<std::string>& text) {
  if (text.ok()) return Hash(*text);
  if (absl::StrContains(text.status().message(), "the chat template leaves the message out")) return "left out";
  if (absl::StrContains(text.status().message(), "is refused by the chat template")) return "error";
  return text.status().ToString();
}

TEST(ChatGoldenTest, EveryConversationReachesTheTemplateAsInTransformers) {
  const std::string folder = SourcePath("../shared/templates/");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const Json chats = ReadGolden("chats.json");
  const Json models = ReadGolden("chat_models.json");
  int num_rendered = 0;
  for (const auto& [name, expected] : models.items()) {
    const std::string source = ReadFile(folder + name);
    if (Hash(source) != expected["source"].get<std::string>()) continue;
    const auto model = ModelWithTemplate(source);
    for (size_t i = 0; i < chats.size(); ++i) {
      const absl::StatusOr<std::string> text = RenderBody(chats[i]["body"], *model);
      EXPECT_EQ(Outcome(text), expected["rendered"][i].get<std::string>())
          << name << ", \"" << chats[i]["name"].get<std::string>() << "\": " << (text.ok() ? *text : "")
          << text.status();
      ++num_rendered;
    }
  }
  EXPECT_GE(num_rendered, 36 * 18);
}

}  // namespace
}  // namespace quire
