// SPDX-License-Identifier: Apache-2.0

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "kv_manager/chat/chat_template.h"
#include "kv_manager/jinja/json.h"
#include "kv_manager/jinja/template.h"
#include "tests/fuzz/template_mutator.h"
#include "tests/random.h"

namespace quire {
namespace {

constexpr jinja::RenderLimits kLimits{.max_steps = 20'000, .max_built_bytes = 2 << 20, .max_output_bytes = 32 << 10};
// For a rendering within these limits, which takes milliseconds, and under sanitizers a hundred.
constexpr double kMaxSeconds = 5;

constexpr std::string_view kConversation = R"({
  "name": "World", "text": "  some <b>Text</b>, \"quoted\" and it's\n\nlong é你😀 ", "lines": "one\ntwo\r\n\nthree\n",
  "none": null, "yes": true, "no": false, "three": 3, "minus": -7, "half": 0.5, "big": 1e+22, "small": 1.5e-07,
  "empty": [], "numbers": [3, 1, 2, 10, -4], "words": ["pear", "Apple", "fig", "apple", "Banana"],
  "mixed": [1, "1", 1.0, true, null, [2], {"k": "v"}],
  "point": {"x": 1, "y": {"z": [10, 20, {"deep": "end"}]}, "items": "shadowed", "Key": null},
  "people": [{"name": "Ann", "age": 30, "tags": ["a", "b"], "active": true}, {"name": "bob", "age": 4, "tags": []},
             {"name": "Cem", "age": 17, "tags": ["c"]}],
  "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi! <|im_end|> \n"},
               {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello."}],
  "tools": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})";

double ThreadSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void CheckError(const absl::Status& status) {
  QUIRE_CHECK(status.code() == absl::StatusCode::kInvalidArgument) << status;
  QUIRE_CHECK(!status.message().empty() && CheckUtf8(std::string(status.message()), "message").ok()) << status;
}

void CheckText(const jinja::Text& text) {
  QUIRE_CHECK_LE(text.bytes.size(), kLimits.max_output_bytes);
  QUIRE_CHECK(IsValidUtf8(text.bytes)) << text.bytes;
  size_t end = 0;
  for (const jinja::Range& range : text.user) {
    QUIRE_CHECK(range.begin < range.end && (end == 0 || range.begin > end) && range.end <= text.bytes.size());
    end = range.end;
  }
}

void Render(const jinja::Template& compiled, std::string_view variables_json) {
  const auto parsed = jinja::ParseJson(variables_json, /*from_user=*/true);
  if (!parsed.ok() || parsed->as_dict() == nullptr) return;
  std::vector<std::pair<std::string, jinja::Value>> variables;
  for (const auto& [key, value] : parsed->as_dict()->entries) variables.emplace_back(key.as_text()->bytes, value);
  const double start = ThreadSeconds();
  const auto text = compiled.Render(std::move(variables), {.limits = kLimits});
  QUIRE_CHECK_LT(ThreadSeconds() - start, kMaxSeconds);
  if (text.ok()) return CheckText(*text);
  CheckError(text.status());
  QUIRE_CHECK(text.status().message().substr(0, 5) == "line ") << text.status();
}

}  // namespace
}  // namespace quire

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  quire::Random random(seed);
  if (random.OneIn(8)) return LLVMFuzzerMutate(data, size, max_size);
  std::string text = quire::ChangedTemplate(std::string(reinterpret_cast<const char*>(data), size), &random);
  text.resize(std::min(text.size(), max_size));
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

// Input: a template, or a tokenizer_config.json, which begins with "{" and a character that begins no tag. A line
// "=== variables" may follow, and then the variables of the template in JSON.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kSeparator = "\n=== variables\n";
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find(kSeparator);
  const std::string_view source = input.substr(0, end);
  const std::string_view variables = end == input.npos ? quire::kConversation : input.substr(end + kSeparator.size());
  const std::string_view begin = source.substr(0, 2);
  if (begin.substr(0, 1) == "{" && begin != "{{" && begin != "{%" && begin != "{#") {
    const auto loaded = quire::ChatTemplate::Load({.tokenizer_config_json = source});
    if (!loaded.ok()) quire::CheckError(loaded.status());
    return 0;
  }
  const auto compiled = quire::jinja::Template::Compile(source);
  if (compiled.ok()) {
    quire::Render(**compiled, variables);
  } else {
    quire::CheckError(compiled.status());
  }
  return 0;
}
