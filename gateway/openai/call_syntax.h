// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_CALL_SYNTAX_H_
#define QUIRE_GATEWAY_OPENAI_CALL_SYNTAX_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace quire {

// How a model writes calls of tools. Each but kNone has an entry in CallSyntaxes().
enum class ToolCallFormat {
  kNone,
  kHermes,
  kLlama3,
  kMistral,
  kQwen3Xml,
  kGlm45,
  kGlm47,
  kOpenai,
  kMinimaxM2,
  kDeepseekV3,
  kDeepseekV31,
  kDeepseekV32,
  kKimiK2,
  kSeedOss,
  kLfm2,
  kGranite,
  kApertus,
  kMinimax,
  kApriel,
  kGigachat3,
  kGemma4,
  kFunctionGemma,
};

// What a call looks like.
enum class CallShape {
  kObject,       // {"name": "f", "arguments": {"a": 1}}
  kKeyedObject,  // {"f": {"a": 1}}
  kNamedObject,  // The name, and behind it the arguments as an object.
  kParameters,   // The name, and behind it each argument between tags. The tool's schema tells the types of the values.
  kPython,       // f(a=1)
  kBareObject,   // The name, and behind it the arguments as an object with bare keys and strings between tags.
  kChannels,     // Messages of harmony: thoughts, contents and calls, each with a header.
};

// How many calls are between the tags, and what is between these calls.
enum class CallGroup {
  kOne,
  kRow,   // Several, one behind the other.
  kList,  // Several, in brackets and with commas.
};

// Describes a format. Both the parsers and the grammar for calls that a client demands are made of it. The texts are
// those of the chat templates, with their white space, which the grammar writes. The parsers ignore white space around
// tags.
struct CallSyntax {
  ToolCallFormat format;
  absl::string_view name;        // As in --tool-call-format. It is the name of vLLM's parser, where there is one.
  absl::string_view alias = {};  // Another name of the flag's value.
  absl::string_view models;      // The models that use it, for the documentation.
  absl::string_view example;     // For the documentation.
  CallShape shape;
  CallGroup group = CallGroup::kOne;
  absl::string_view open = {};       // Before a group of calls.
  absl::string_view close = {};      // Behind it. It may be missing.
  absl::string_view separator = {};  // Between the calls of a row, and between groups of one call.
  bool has_special_tags = false;     // The tags may be special tokens, so the text must show these.
  bool may_lack_open = false;        // A text may begin with a call, without the tag.
  // kObject: the grammar writes this key. The parser takes "parameters" and "arguments".
  absl::string_view arguments_key = "arguments";
  // kNamedObject, kParameters and kBareObject: a call is begin, name_prefix, the name, name_end, the arguments, end. An
  // `end` that is empty is missing.
  absl::string_view begin = {};
  absl::string_view name_prefix = {};  // It may be missing.
  bool has_number = false;             // ":0" follows the name, and the three together are the id of the call.
  absl::string_view name_end = {};     // If only white space, the name ends there or at the next tag.
  absl::string_view end = {};
  // kParameters: an argument is key_begin, its name, key_end, value_begin, the value, value_end.
  absl::string_view key_begin = {};
  absl::string_view key_end = {};
  absl::string_view value_begin = {};
  absl::string_view value_end = {};
  // kParameters: behind the name are an attribute that says whether the value is a string ("true" or "false"), and a
  // quote before key_end.
  absl::string_view string_attribute = {};
  absl::string_view quote = {};  // kBareObject: the tag before and behind a string.
};

// How a model writes its thoughts: between tags at the beginning of an answer. Without tags, they are a channel of
// harmony.
struct ReasoningSyntax {
  absl::string_view name;  // As in --reasoning-format.
  absl::string_view begin = {};
  absl::string_view end = {};
  bool has_special_tags = false;  // As in CallSyntax.

  bool is_channel() const { return begin.empty(); }
};

// All formats, in the order of the documentation.
absl::Span<const CallSyntax> CallSyntaxes();
absl::Span<const ReasoningSyntax> ReasoningSyntaxes();

// REQUIRES: `format` is not kNone.
const CallSyntax& SyntaxOf(ToolCallFormat format);

// Returns the format of calls with this name, or kNone.
ToolCallFormat ToolCallFormatOf(absl::string_view name);
// Returns the format of thoughts with this name, or null.
const ReasoningSyntax* ReasoningSyntaxOf(absl::string_view name);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_CALL_SYNTAX_H_
