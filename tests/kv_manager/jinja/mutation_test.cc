// SPDX-License-Identifier: Apache-2.0

// Templates with random changes: whatever they are, they compile and render or give an error, and the text of a user
// stays marked.

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gtest/gtest.h"
#include "kv_manager/jinja/json.h"
#include "kv_manager/jinja/template.h"
#include "tests/random.h"
#include "tests/test_paths.h"

namespace quire::jinja {
namespace {

class MutationTest : public testing::Test {
 protected:
  MutationTest() {
    std::ifstream in(SourcePath("tests/golden/jinja/constructs.json"), std::ios::binary);
    const auto golden = nlohmann::ordered_json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
    for (const auto& golden_case : golden["cases"]) sources_.push_back(golden_case[0]);
    for (const auto& [name, value] : golden["variables"].items()) {
      variables_.emplace_back(name, ParseJson(value.dump(), true).value());
    }
  }

  // Joins parts of two templates, and changes some characters.
  std::string Mutate(Random* random) {
    const std::string& a = sources_[random->Below(sources_.size())];
    const std::string& b = sources_[random->Below(sources_.size())];
    std::string source = a.substr(0, random->Below(a.size() + 1)) + b.substr(random->Below(b.size() + 1));
    static constexpr std::string_view kCharacters = "{}%#-+()[].,:|~*/<>='\"\\ \n019abinoxs_";
    for (uint64_t i = random->Below(4); i > 0 && !source.empty(); --i) {
      const size_t at = random->Below(source.size());
      switch (random->Below(3)) {
        case 0:
          source[at] = kCharacters[random->Below(kCharacters.size())];
          break;
        case 1:
          source.insert(at, 1, kCharacters[random->Below(kCharacters.size())]);
          break;
        default:
          source.erase(at, 1 + random->Below(3));
      }
    }
    return source;
  }

  std::vector<std::string> sources_;
  std::vector<std::pair<std::string, Value>> variables_;
};

TEST_F(MutationTest, EveryTemplateGivesTextOrAnError) {
  Random random(16);
  RenderOptions options;
  options.limits.max_steps = 20'000;
  options.limits.max_output_bytes = 100'000;
  int num_compiled = 0;
  int num_rendered = 0;
  for (int i = 0; i < 40'000; ++i) {
    const std::string source = Mutate(&random);
    SCOPED_TRACE(source);
    const auto compiled = Template::Compile(source);
    if (!compiled.ok()) {
      ASSERT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++num_compiled;
    const auto text = (*compiled)->Render(variables_, options);
    if (!text.ok()) {
      ASSERT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
      ASSERT_EQ(text.status().message().substr(0, 5), "line ") << text.status();
      continue;
    }
    ++num_rendered;
    ASSERT_LE(text->bytes.size(), options.limits.max_output_bytes);
    size_t end = 0;
    for (const Range& range : text->user) {
      ASSERT_TRUE(range.begin < range.end && (end == 0 || range.begin > end) && range.end <= text->bytes.size());
      end = range.end;
    }
  }
  EXPECT_GT(num_compiled, 5'000);
  EXPECT_GT(num_rendered, 3'000);
}

}  // namespace
}  // namespace quire::jinja
