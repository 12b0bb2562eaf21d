// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "gateway/openai/answer_parser.h"
#include "gateway/openai/field_reader.h"
#include "tests/random.h"

namespace quire {
namespace {

// What the first line of an input says: names of formats, letters of options, and a number from which the pieces are
// drawn. Names that are unknown stand for a format as well, so that every input is parsed.
AnswerSyntax SyntaxOfLine(absl::string_view line, uint64_t* seed) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  const auto word = [&words](size_t i) { return i < words.size() ? words[i] : absl::string_view(); };
  const auto hash = [](absl::string_view text) {
    size_t sum = 0;
    for (const char c : text) sum = sum * 31 + static_cast<unsigned char>(c);
    return sum;
  };
  const auto has = [&](char option) { return word(2).find(option) != absl::string_view::npos; };
  AnswerSyntax syntax = {.tool_calls = {.format = ToolCallFormatOf(word(0)),
                                        .tools = {"f", "g"},
                                        .is_single = has('s'),
                                        .is_forced = has('f'),
                                        .parameters = {{"f",
                                                        {{"a", kNumberType},
                                                         {"s", kStringType},
                                                         {"b", kBooleanType | kNullType},
                                                         {"o", kObjectType | kArrayType},
                                                         {"u", kStringType | kNumberType}}}}}};
  if (syntax.tool_calls.format == ToolCallFormat::kNone) {
    syntax.tool_calls.format = CallSyntaxes()[hash(word(0)) % CallSyntaxes().size()].format;
  }
  syntax.reasoning = ReasoningSyntaxOf(word(1));
  syntax.has_reasoning = syntax.reasoning != nullptr;
  if (!syntax.has_reasoning) syntax.reasoning = &UsualReasoning();
  syntax.begins_in_reasoning = has('t');
  syntax.tool_calls.begins_in_call = has('c') && syntax.tool_calls.format == ToolCallFormat::kMistral;
  *seed = hash(word(3));
  return syntax;
}

// The parts of an answer belong together: calls are counted from 0, the first part of each has a name, and their places
// in the content ascend.
void Check(const AnswerSyntax& syntax, const AnswerText& text, bool has_whole_calls) {
  size_t num_calls = 0;
  for (const ToolCallDelta& call : text.calls) {
    QUIRE_CHECK_EQ(call.index, num_calls++);
    QUIRE_CHECK(call.name == "f" || call.name == "g") << call.name;
    QUIRE_CHECK(!call.id.empty());
    QUIRE_CHECK(!has_whole_calls || Json::accept(call.arguments)) << call.arguments;
  }
  QUIRE_CHECK(!syntax.tool_calls.is_single || num_calls <= 1);
  QUIRE_CHECK(!syntax.tool_calls.is_forced || text.content.empty()) << text.content;
  QUIRE_CHECK(syntax.has_reasoning || text.reasoning.empty()) << text.reasoning;
}

std::string Described(const AnswerText& text, bool has_whole_calls) {
  std::string all = absl::StrCat(text.reasoning, "|", text.content, "|", has_whole_calls);
  for (const ToolCallDelta& call : text.calls) {
    absl::StrAppend(&all, "|", call.id, " ", call.name, " ", call.arguments);
  }
  return all;
}

// Parses a text in pieces of up to `max_bytes`.
std::string Parse(const AnswerSyntax& syntax, absl::string_view text, size_t max_bytes, Random* random) {
  AnswerParser parser(&syntax, [](size_t index) { return absl::StrCat("id", index); });
  AnswerText all;
  do {
    const size_t num_bytes =
        max_bytes >= text.size() ? text.size() : static_cast<size_t>(random->Between(1, static_cast<int>(max_bytes)));
    const AnswerText more = parser.Add(text.substr(0, num_bytes), num_bytes == text.size());
    for (const ToolCallDelta& call : more.calls) QUIRE_CHECK_LE(call.content_begin, more.content.size());
    Append(more, &all);
    text.remove_prefix(num_bytes);
  } while (!text.empty());
  Check(syntax, all, parser.has_whole_calls());
  return Described(all, parser.has_whole_calls());
}

// A piece of a format, or a character of JSON.
std::string Piece(Random* random) {
  const auto formats = CallSyntaxes();
  const CallSyntax& of = formats[static_cast<size_t>(random->Below(static_cast<int>(formats.size())))];
  const auto thoughts = ReasoningSyntaxes();
  const ReasoningSyntax& reasoning = thoughts[static_cast<size_t>(random->Below(static_cast<int>(thoughts.size())))];
  const absl::string_view pieces[] = {of.open,
                                      of.close,
                                      of.begin,
                                      of.name_end,
                                      of.end,
                                      of.key_begin,
                                      of.key_end,
                                      of.value_begin,
                                      of.value_end,
                                      reasoning.begin,
                                      reasoning.end,
                                      "<|start|>",
                                      "<|channel|>",
                                      "<|message|>",
                                      "<|end|>",
                                      "to=functions.f",
                                      "analysis",
                                      "{\"a\": 1}",
                                      "\"name\": \"f\"",
                                      "f",
                                      "\n",
                                      " ",
                                      "<",
                                      "\"",
                                      "{",
                                      "}",
                                      "[",
                                      "]",
                                      "'",
                                      "True"};
  return std::string(pieces[random->Below(static_cast<int>(std::size(pieces)))]);
}

}  // namespace
}  // namespace quire

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  quire::Random random(seed);
  if (size == 0 || random.OneIn(3)) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data), size);
  const size_t at = static_cast<size_t>(random.Below(static_cast<int>(size)));
  if (random.OneIn(3)) {
    text.erase(at, static_cast<size_t>(random.Between(1, 12)));
  } else {
    text.insert(at, quire::Piece(&random));
  }
  text.resize(std::min(text.size(), max_size));
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

// Input: a line with the format of calls, the format of thoughts, letters (s: one call, f: forced, t: the text begins
// in thoughts, c: behind the tag of calls) and a word, and then the text of a model. However the text is divided, it
// means the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\n'), input.size());
  uint64_t seed = 0;
  const quire::AnswerSyntax syntax = quire::SyntaxOfLine(input.substr(0, end), &seed);
  const absl::string_view text = end < input.size() ? input.substr(end + 1) : "";
  quire::Random random(seed);
  const std::string whole = quire::Parse(syntax, text, text.size(), &random);
  for (const size_t max_bytes : {1, 5, 40}) {
    QUIRE_CHECK(quire::Parse(syntax, text, max_bytes, &random) == whole) << "pieces of at most " << max_bytes;
  }
  return 0;
}
