// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/forced_calls.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gateway/openai/bare_grammar.h"
#include "gateway/openai/call_syntax.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/lark_items.h"
#include "gateway/openai/parameter_types.h"
#include "gateway/openai/schema_document.h"
#include "gateway/openai/text_pattern.h"

namespace quire {
namespace {

constexpr char kRuleEnd[] = "_function_parameters";

// Returns the number of bytes of the tag with which a text begins; 0 if it is none that a grammar can name.
size_t TagBytes(absl::string_view text) {
  const size_t end = text.find_first_of(" \n=\"'>");
  return absl::StartsWith(text, "<") && end != text.npos && text[end] == '>' ? end + 1 : 0;
}

// Returns a text of a format as items of Lark. Its tags may be special tokens if `has_special_tags`.
std::string Items(absl::string_view text, bool has_special_tags) {
  std::string items;
  size_t begin = 0;
  for (size_t at = 0; has_special_tags && at < text.size();) {
    const size_t num_bytes = TagBytes(text.substr(at));
    if (num_bytes == 0) {
      ++at;
      continue;
    }
    if (at > begin) items += LarkLiteral(text.substr(begin, at - begin));
    absl::StrAppend(&items, " ", text.substr(at, num_bytes));
    at += num_bytes;
    begin = at;
  }
  if (begin < text.size()) items += LarkLiteral(text.substr(begin));
  return items;
}

// Returns items, which begin with a space, in brackets.
std::string InBrackets(const char* begin, absl::string_view items, const char* end) {
  return absl::StrCat(" ", begin, items.substr(1), end);
}

// Returns the name of the rule for the parameters of a tool, such as "tools_2_function_parameters" for tools[2]. Errors
// contain it.
std::string ParametersRule(const CallableTool& tool) {
  return absl::StrCat(absl::StrReplaceAll(tool.field, {{"[", "_"}, {"]", ""}, {".", "_"}}), kRuleEnd);
}

// Makes the rules of one format.
class CallGrammar {
 public:
  explicit CallGrammar(const CallSyntax& syntax) : syntax_(syntax), bare_(syntax.quote, kMaxCallGrammarBytes) {}

  // Returns the body of the rule for one call of any tool.
  std::string CallBody(const std::vector<CallableTool>& tools) const {
    std::string body;
    for (const CallableTool& tool : tools) absl::StrAppend(&body, body.empty() ? "" : " |", OneCall(tool));
    return body;
  }

  std::string CallsBody(bool is_single) const {
    const bool writes_open = !syntax_.may_lack_open && !ForcedCallsBeginBehindTag(syntax_.format);
    const std::string open = writes_open ? Text(syntax_.open) : "";
    const std::string close = Text(syntax_.close);
    switch (syntax_.group) {
      case CallGroup::kOne:
        if (syntax_.shape == CallShape::kChannels) return " call";
        return Several(InBrackets("(", absl::StrCat(open, " call", close), ")"), syntax_.separator, is_single);
      case CallGroup::kRow:
        return absl::StrCat(open, Several(" call", syntax_.separator, is_single), close);
      case CallGroup::kList:
        return absl::StrCat(open, " \"[\"", Several(" call", ", ", is_single), " \"]\"", close);
    }
    return "";
  }

  // Returns the rules that the bodies need.
  std::string OtherRules() const { return bare_.Rules(); }

  // Returns the body of the rule for the arguments of a tool.
  std::string ParametersBody(const CallableTool& tool) {
    if (!tool.is_strict) return AnyParameters();
    const bool is_bare = syntax_.shape == CallShape::kBareObject;
    if (!is_bare && syntax_.shape != CallShape::kParameters && syntax_.shape != CallShape::kPython) {
      return absl::StrCat(" %json ", WithoutGbnfSign(tool.parameters));
    }
    const Json root = ParsePart(tool.parameters);
    SchemaDocument document(root);
    types_.NextDocument();
    if (is_bare) return bare_.Root(&document);
    const Json* const object = document.SchemaWithProperties();
    if (object == nullptr) return " \"\"";
    if (syntax_.shape == CallShape::kPython) return PythonBody(*object, &document);
    const absl::flat_hash_set<absl::string_view> required = RequiredMembers(*object);
    std::string body;
    for (const auto& [name, property] : (*object)["properties"].items()) {
      const std::string argument = Argument(name, property, &document);
      absl::StrAppend(&body, required.contains(name) ? argument : absl::StrCat(" [", argument, "]"));
      if (body.size() > kMaxCallGrammarBytes) break;
    }
    return body.empty() ? " \"\"" : body;
  }

 private:
  static std::string Several(const std::string& call, absl::string_view separator, bool is_single) {
    if (is_single) return call;
    return call + InBrackets("(", absl::StrCat(separator.empty() ? "" : LarkLiteral(separator), call), ")*");
  }

  std::string AnyParameters() {
    const std::string argument = " /[A-Za-z_][A-Za-z0-9_]*=/ %json {}";
    switch (syntax_.shape) {
      case CallShape::kParameters:
        return absl::StrCat(" (", Text(syntax_.key_begin), " /[^<>\"\\n]+/", Text(syntax_.key_end),
                            Text(syntax_.value_begin), " /", PatternUntil(syntax_.value_end), "/)*");
      case CallShape::kPython:
        return absl::StrCat(" [", argument, " (", LarkLiteral(", "), argument, ")*]");
      case CallShape::kBareObject: {
        const Json any = Json::object({{"type", "object"}});
        SchemaDocument document(any);
        return bare_.Root(&document);
      }
      default:
        return " %json {\"type\": \"object\"}";
    }
  }

  std::string Text(absl::string_view text) const { return Items(text, syntax_.has_special_tags); }

  std::string OneCall(const CallableTool& tool) const {
    const std::string rule = " " + ParametersRule(tool);
    const std::string name = WithoutGbnfSign(Dump(tool.name));
    switch (syntax_.shape) {
      case CallShape::kObject:
        return absl::StrCat(LarkLiteral(absl::StrCat("{\"name\": ", name, ", \"", syntax_.arguments_key, "\": ")), rule,
                            " \"}\"");
      case CallShape::kKeyedObject:
        return absl::StrCat(LarkLiteral(absl::StrCat("{", name, ": ")), rule, " \"}\"");
      case CallShape::kPython:
        return absl::StrCat(LarkLiteral(tool.name + "("), rule, " \")\"");
      case CallShape::kChannels:
        return absl::StrCat(Text("<|channel|>commentary to="),
                            LarkLiteral(absl::StrCat(syntax_.name_prefix, tool.name, " ")),
                            Text("<|constrain|>json<|message|>"), rule);
      case CallShape::kBareObject:
      case CallShape::kNamedObject:
      case CallShape::kParameters:
        return absl::StrCat(Text(syntax_.begin), LarkLiteral(absl::StrCat(syntax_.name_prefix, tool.name)),
                            syntax_.has_number ? " /:[0-9]{1,4}/" : "", Text(syntax_.name_end), rule,
                            Text(syntax_.end));
    }
    return "";
  }

  // Adds the definitions of the whole schema that this part of it needs.
  static std::string Schema(const Json& property, SchemaDocument* document) {
    const Json& root = document->root();
    Json schema = property.is_object() ? property : Json::object();
    for (const char* const name : {"$defs", "definitions"}) {
      if (schema.contains(name) || !root.contains(name) || !root[name].is_object()) continue;
      Json needed = NeededDefinitions(property, absl::StrCat("#/", name, "/"), root[name], document);
      if (!needed.empty()) schema[name] = std::move(needed);
    }
    return absl::StrCat("%json ", WithoutGbnfSign(Dump(schema)));
  }

  // Returns the definitions that `part` refers to, and the ones that these refer to. `prefix` is "#/$defs/".
  static Json NeededDefinitions(const Json& part, const std::string& prefix, const Json& definitions,
                                SchemaDocument* document) {
    Json needed = Json::object();
    absl::flat_hash_set<const Json*> known;
    std::vector<const Json*> unread = {&part};
    while (!unread.empty()) {
      const Json& value = *unread.back();
      unread.pop_back();
      if (!value.is_structured()) continue;
      for (const Json& member : value) unread.push_back(&member);
      const auto reference = value.is_object() ? value.find("$ref") : value.end();
      if (reference == value.end() || !reference->is_string()) continue;
      const std::string& path = reference->get_ref<const std::string&>();
      if (!absl::StartsWith(path, prefix)) continue;
      const std::string pointer = path.substr(prefix.size(), path.find('/', prefix.size()) - prefix.size());
      const std::string name = absl::StrReplaceAll(pointer, {{"~1", "/"}, {"~0", "~"}});
      const Json* const definition = document->MemberOf(definitions, name);
      if (definition == nullptr || !known.insert(definition).second) continue;
      // The base class does not look for the name among all others.
      static_cast<Json::object_t::Container&>(needed.get_ref<Json::object_t&>()).emplace_back(name, *definition);
      unread.push_back(definition);
    }
    return needed;
  }

  // Returns the items of one argument: the tags, the name and all values that its schema has.
  std::string Argument(const std::string& name, const Json& property, SchemaDocument* document) {
    const std::string begin = Text(syntax_.key_begin) + LarkLiteral(name);
    const auto key_end = [this](bool is_string) {
      const std::string attribute =
          syntax_.string_attribute.empty()
              ? ""
              : LarkLiteral(absl::StrCat(syntax_.string_attribute, is_string ? "true" : "false"));
      return absl::StrCat(attribute, Text(syntax_.key_end), Text(syntax_.value_begin));
    };
    const std::string end = Text(syntax_.value_end);
    std::string values;
    const auto add = [&](bool is_string, const std::string& value) {
      absl::StrAppend(&values, values.empty() ? "" : " |", key_end(is_string), value);
    };
    const Json* schema = &property;
    if (schema->is_object() && schema->contains("$ref")) {
      const Json* const target = document->TargetOf((*schema)["$ref"]);
      if (target != nullptr) schema = target;
    }
    const auto add_constant = [&](const Json& constant) {
      const std::string text = constant.is_string() ? constant.get<std::string>() : Dump(constant);
      if (!absl::StrContains(text, absl::StripAsciiWhitespace(syntax_.value_end))) {
        add(constant.is_string(), LarkLiteral(text) + end);
      }
    };
    if (schema->is_object() && schema->contains("const")) {
      add_constant((*schema)["const"]);
    } else if (schema->is_object() && schema->contains("enum") && (*schema)["enum"].is_array()) {
      for (const Json& constant : (*schema)["enum"]) add_constant(constant);
    }
    if (values.empty() && (types_.Of(property, document) & kStringType) != 0) {
      add(true, absl::StrCat(" /", PatternUntil(syntax_.value_end), "/"));
    } else if (values.empty()) {
      add(false, absl::StrCat(" ", Schema(property, document), end));
    }
    return absl::StrCat(begin, " (", values, ")");
  }

  // Arguments with commas between them.
  static std::string PythonBody(const Json& object, SchemaDocument* document) {
    const absl::flat_hash_set<absl::string_view> required = RequiredMembers(object);
    std::vector<LarkMember> members;
    size_t num_bytes = 0;
    for (const auto& [name, property] : object["properties"].items()) {
      members.push_back(
          {absl::StrCat(LarkLiteral(name + "="), " ", Schema(property, document)), required.contains(name)});
      num_bytes += members.back().items.size();
      if (num_bytes > kMaxCallGrammarBytes) break;
    }
    return LarkMembers(members, ", ", kMaxCallGrammarBytes);
  }

  const CallSyntax& syntax_;
  SchemaTypes types_;
  BareGrammar bare_;
};

// Thoughts that contain the first two characters of their last tag would need a larger grammar, so they have these at
// their end only.
std::string ThoughtsPattern(absl::string_view end) {
  const std::string first = EscapedInPattern(end.substr(0, 1));
  const std::string second = EscapedInPattern(end.substr(1, 1));
  return absl::StrCat("([^", first, "]|", first, "+[^", first, second, "])*");
}

// Returns the items of thoughts before a call; `rule` gets the rule that they use.
std::string ThoughtsItems(Thoughts thoughts, const ReasoningSyntax& syntax, std::string* rule) {
  if (thoughts == Thoughts::kNone) return "";
  if (syntax.is_channel()) {
    return absl::StrCat(" [", Items("<|channel|>analysis<|message|>", true), " /", ThoughtsPattern("<|"), "/",
                        Items("<|end|><|start|>assistant", true), "]");
  }
  // A grammar cannot name these special tokens.
  if (syntax.has_special_tags && TagBytes(syntax.begin) == 0 && thoughts == Thoughts::kOptional) return "";
  const std::string pattern = ThoughtsPattern(syntax.end);
  *rule = syntax.has_special_tags ? absl::StrCat("thoughts: /", pattern, "/", Items(syntax.end, true), " /\\n{0,2}/\n")
                                  : absl::StrCat("thoughts: /", pattern, EscapedInPattern(syntax.end), "\\n{0,2}/\n");
  if (thoughts == Thoughts::kBegun) return " thoughts";
  return InBrackets("[", absl::StrCat(Items(syntax.begin, syntax.has_special_tags), " thoughts"), "]");
}

}  // namespace

bool ForcedCallsBeginBehindTag(ToolCallFormat format) {
  if (format == ToolCallFormat::kNone) return false;
  const CallSyntax& syntax = SyntaxOf(format);
  return syntax.has_special_tags && !syntax.open.empty() && TagBytes(syntax.open) == 0;
}

namespace {

// Returns a grammar with the rules of all tools.
std::string GrammarOf(const std::string& start, CallGrammar calls, const std::vector<CallableTool>& tools) {
  std::string grammar = absl::StrCat("start:", start, "\ncall:", calls.CallBody(tools), "\n");
  for (const CallableTool& tool : tools) {
    absl::StrAppend(&grammar, ParametersRule(tool), ":", calls.ParametersBody(tool), "\n");
    if (grammar.size() > kMaxCallGrammarBytes) break;
  }
  return grammar + calls.OtherRules();
}

// Returns whether the parser finds the end of a name of a tool, or of one of its arguments.
bool IsWritable(const CallSyntax& syntax, absl::string_view name, bool is_argument) {
  const bool is_json = syntax.shape == CallShape::kObject || syntax.shape == CallShape::kKeyedObject;
  const bool is_tagged = syntax.shape == CallShape::kParameters || syntax.shape == CallShape::kPython;
  if (is_argument && syntax.shape == CallShape::kBareObject) return !absl::StrContains(name, syntax.quote);
  if (is_json || (is_argument && !is_tagged)) return true;
  if (name.empty() || absl::StripAsciiWhitespace(name) != name) return false;
  if (syntax.shape == CallShape::kPython) {
    return !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) && std::ranges::all_of(name, [](unsigned char c) {
      return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
    });
  }
  const absl::string_view ends = is_argument ? "<>\"\n\r" : "<>\"\n\r\t `'{}[]()=:|";
  return name.find_first_of(ends) == name.npos && !absl::StrContains(name, "\uff5c");
}

}  // namespace

std::optional<ApiError> UnwritableName(ToolCallFormat format, const std::vector<CallableTool>& tools) {
  const CallSyntax& syntax = SyntaxOf(format);
  const auto error = [&](const CallableTool& tool, const char* what, const std::string& name) {
    return FieldError(tool.field, absl::StrCat("has the ", what, " ", Dump(name), ", which a call in the format ",
                                               syntax.name, " of this model cannot hold"));
  };
  for (const CallableTool& tool : tools) {
    if (!IsWritable(syntax, tool.name, /*is_argument=*/false)) return error(tool, "name", tool.name);
    const Json root = ParsePart(tool.parameters);
    const Json* const object = SchemaDocument(root).SchemaWithProperties();
    if (object == nullptr) continue;
    for (const auto& [name, property] : (*object)["properties"].items()) {
      if (!IsWritable(syntax, name, /*is_argument=*/true)) return error(tool, "argument", name);
    }
  }
  return std::nullopt;
}

std::string ForcedCallGrammar(ToolCallFormat format, const std::vector<CallableTool>& tools, bool is_single,
                              Thoughts thoughts, const ReasoningSyntax& reasoning) {
  const CallGrammar calls(SyntaxOf(format));
  std::string thoughts_rule;
  const std::string first = ThoughtsItems(thoughts, reasoning, &thoughts_rule);
  return GrammarOf(first + calls.CallsBody(is_single), calls, tools) + thoughts_rule;
}

std::optional<std::string> StrictCallGrammar(ToolCallFormat format, const std::vector<CallableTool>& tools,
                                             bool is_single, Thoughts thoughts, const ReasoningSyntax& reasoning) {
  const CallSyntax& syntax = SyntaxOf(format);
  // A tag that is a part of a special token, as in DeepSeek V3.2, is no text.
  if (syntax.may_lack_open || !syntax.string_attribute.empty() || TagBytes(syntax.open) == 0) return std::nullopt;
  std::string first;
  if (thoughts != Thoughts::kNone) {
    if (reasoning.is_channel() || (reasoning.has_special_tags && TagBytes(reasoning.begin) == 0)) return std::nullopt;
    const std::string text = absl::StrCat(" /", PatternWithout(reasoning.end), "/");
    first = text + Items(reasoning.end, reasoning.has_special_tags);
    if (thoughts == Thoughts::kOptional) {
      first = absl::StrCat(" [", Items(reasoning.begin, reasoning.has_special_tags), first, "]");
    }
  }
  const CallGrammar calls(syntax);
  const std::string text = absl::StrCat(" /", PatternWithout(syntax.open), "/");
  return GrammarOf(absl::StrCat(first, text, " [", calls.CallsBody(is_single), "]"), calls, tools);
}

// An example is: at byte 9 in line 3, "%": in %json of the rule "tools_2_function_parameters", at #/type: ...
std::optional<std::string> TakeParametersField(absl::string_view name, std::string* description) {
  const std::string begin = "in %json of the rule \"tools_";
  const std::string end = absl::StrCat(kRuleEnd, "\", ");
  size_t index_begin = description->find(begin);
  if (index_begin == std::string::npos) return std::nullopt;
  index_begin += begin.size();
  const size_t index_end = description->find(end, index_begin);
  if (index_end == std::string::npos) return std::nullopt;
  const std::string index = description->substr(index_begin, index_end - index_begin);
  description->erase(0, index_end + end.size());
  return absl::StrCat("tools[", absl::StrReplaceAll(index, {{"_tools_", "].tools["}}), "].", name);
}

}  // namespace quire
