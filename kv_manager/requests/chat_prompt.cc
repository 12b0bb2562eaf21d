// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/chat_prompt.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_reason.h"
#include "base/utf8.h"
#include "kv_manager/jinja/json.h"
#include "kv_manager/jinja/value.h"

namespace quire {
namespace {

using jinja::Dict;
using jinja::Value;

constexpr char kDeveloper[] = "developer";
constexpr int kMaxUnusualRoles = 16;

void Set(std::string_view key, Value value, Dict* dict) {
  dict->Set(Value(key), std::move(value)).IgnoreError();  // A text is always a key.
}

Value MakeDict(Dict dict) {
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

bool IsBlank(std::string_view text) {
  const jinja::Range kept = jinja::Strip(text, /*chars=*/nullptr, /*left=*/true, /*right=*/true);
  return kept.begin == kept.end;
}

// Returns the content of a message, or the last text of a content in parts.
const std::string& LastText(const v1::ChatMessage& message) {
  return message.content_parts().empty() ? message.content() : *message.content_parts().rbegin();
}

bool LacksContent(const v1::ChatMessage& message) {
  return !message.has_content() && message.content_parts().empty();
}

// What a template sees of a message without content.
enum class Absent { kMissing, kEmptyText };

// Checks one conversation and makes template values of it. Everything that it has is marked as text of a user.
class ChatReader {
 public:
  ChatReader(const v1::Chat& chat, const ChatTemplate& chat_template, Absent absent, const std::string& field,
             FieldErrors* errors)
      : chat_(chat), template_(chat_template), absent_(absent), field_(field), errors_(errors) {}

  // Only what this beginning of the conversation has is marked as text of a user.
  void MarkOnly(const v1::PrefixPin& beginning) { beginning_ = &beginning; }

  // Returns nothing when a field is wrong.
  std::optional<ChatTemplate::Input> Read() {
    ChatTemplate::Input input;
    if (chat_.messages().empty()) Add("messages", "is empty, a conversation needs at least one message");
    if (chat_.messages_size() > kMaxMessages) {
      Add("messages", absl::StrCat("has ", chat_.messages_size(), " entries, at most ", kMaxMessages, " are allowed"));
      return std::nullopt;
    }
    ReadTools(&input);
    has_tools_ = !input.tools.is_none();
    for (int i = 0; i < chat_.messages_size(); ++i) {
      input.messages.push_back(ReadMessage(i, absl::StrCat("messages[", i, "]")));
    }
    marks_ = beginning_ == nullptr;
    ReadKwargs(&input);
    input.add_generation_prompt =
        chat_.has_add_generation_prompt() ? chat_.add_generation_prompt() : !chat_.continue_final_message();
    if (input.add_generation_prompt && chat_.continue_final_message()) {
      Add("continue_final_message", "cannot be combined with add_generation_prompt");
    }
    if (chat_.continue_final_message() && !chat_.messages().empty() && IsBlank(LastText(*chat_.messages().rbegin()))) {
      Add("continue_final_message", "needs a last message with content");
    }
    if (has_error_) return std::nullopt;
    return input;
  }

 private:
  // Makes the members that the message has in Transformers, where a member that is null counts as missing.
  Value ReadMessage(int index, const std::string& path) {
    const v1::ChatMessage& in = chat_.messages(index);
    SetMarks(index);
    Dict message;
    const auto set_text = [&](const char* key, bool has, const std::string& text) {
      if (has) Set(key, Text(text, absl::StrCat(path, ".", key)), &message);
    };
    const std::string* const thoughts = Thoughts(in);
    if (thoughts != nullptr) set_text("thinking", true, in.has_thinking() ? in.thinking() : *thoughts);
    Set("role", ReadRole(in.role(), path), &message);
    ReadContent(in, path, &message);
    if (thoughts != nullptr) set_text("reasoning_content", true, *thoughts);
    set_text("reasoning", in.has_reasoning(), in.reasoning());
    if (!in.tool_calls().empty()) Set("tool_calls", ReadToolCalls(in, path), &message);
    set_text("tool_call_id", in.has_tool_call_id(), in.tool_call_id());
    set_text("name", in.has_name(), in.name());
    return MakeDict(std::move(message));
  }

  void SetMarks(int index) {
    marks_ = true;
    num_marked_parts_ = num_marked_calls_ = INT_MAX;
    if (beginning_ == nullptr) return;
    marks_ = index < static_cast<int>(beginning_->num_messages());
    if (index + 1 != static_cast<int>(beginning_->num_messages())) return;
    if (beginning_->has_num_parts()) {
      num_marked_parts_ = static_cast<int>(beginning_->num_parts());
      num_marked_calls_ = 0;
    } else if (beginning_->has_num_tool_calls()) {
      num_marked_calls_ = static_cast<int>(beginning_->num_tool_calls());
    }
  }

  Value ReadRole(const std::string& role, const std::string& path) {
    if (role.empty()) Add(absl::StrCat(path, ".role"), "is not set");
    if (role.size() > kMaxRoleBytes) {
      Add(absl::StrCat(path, ".role"),
          absl::StrCat("has ", role.size(), " bytes, at most ", kMaxRoleBytes, " are allowed"));
    }
    return IsSystem(role) ? Value("system") : Text(role, absl::StrCat(path, ".role"));
  }

  // Messages of the role developer are what those of the role system were before.
  bool IsSystem(const std::string& role) const {
    return role == "system" || (role == kDeveloper && !template_.knows_developer());
  }

  // Returns what the template sees as reasoning_content, or null if there is none.
  static const std::string* Thoughts(const v1::ChatMessage& in) {
    if (in.has_reasoning_content()) return &in.reasoning_content();
    if (in.has_thinking()) return &in.thinking();
    return in.has_reasoning() ? &in.reasoning() : nullptr;
  }

  void ReadContent(const v1::ChatMessage& in, const std::string& path, Dict* message) {
    if (LacksContent(in)) {
      if (absent_ == Absent::kEmptyText) Set("content", Value(""), message);
      return;
    }
    const std::string content_path = absl::StrCat(path, ".content");
    if (in.content_parts().empty()) return Set("content", Text(in.content(), content_path), message);
    if (in.has_content()) Add(content_path, "cannot be combined with content_parts");
    constexpr int kValuesPerPart = 3;
    num_json_values_left_ -= std::min(num_json_values_left_, kValuesPerPart * in.content_parts_size());
    if (num_json_values_left_ == 0) {
      return Add(absl::StrCat(path, ".content_parts"),
                 absl::StrCat("has too many parts: a conversation has at most ", jinja::kMaxJsonValues,
                              " JSON values, and each part counts as ", kValuesPerPart));
    }
    if (!template_.TakesParts(IsSystem(in.role()) ? "system" : in.role(), has_tools_)) {
      return Set("content", JoinedParts(in, content_path), message);
    }
    std::vector<Value> parts;
    const bool marks = marks_;
    for (int i = 0; i < in.content_parts_size(); ++i) {
      marks_ = marks && i < num_marked_parts_;
      Dict part;
      Set("type", Value("text"), &part);
      Set("text", Text(in.content_parts(i), content_path), &part);
      parts.push_back(MakeDict(std::move(part)));
    }
    marks_ = marks;
    Set("content", Value::MakeList(std::move(parts)), message);
  }

  Value JoinedParts(const v1::ChatMessage& in, const std::string& path) {
    jinja::TextBuilder joined;
    for (int i = 0; i < in.content_parts_size(); ++i) {
      joined.Append(in.content_parts(i), marks_ && i < num_marked_parts_);
    }
    if (IsValidUtf8(joined.text().bytes)) return Value(joined.Take());
    Add(path, "is not valid UTF-8");
    return Value();
  }

  Value ReadToolCalls(const v1::ChatMessage& in, const std::string& path) {
    std::vector<Value> calls;
    if (in.tool_calls_size() > kMaxToolCalls) {
      Add(absl::StrCat(path, ".tool_calls"),
          absl::StrCat("has ", in.tool_calls_size(), " entries, at most ", kMaxToolCalls, " are allowed"));
      return Value();
    }
    const bool marks = marks_;
    for (int i = 0; i < in.tool_calls_size(); ++i) {
      marks_ = marks && i < num_marked_calls_;
      const v1::ToolCall& call = in.tool_calls(i);
      const std::string call_path = absl::StrCat(path, ".tool_calls[", i, "]");
      Dict function;
      Set("name", Text(call.name(), absl::StrCat(call_path, ".name")), &function);
      Set("arguments", ReadArguments(call, absl::StrCat(call_path, ".arguments")), &function);
      Dict out;
      if (!call.id().empty()) Set("id", Text(call.id(), absl::StrCat(call_path, ".id")), &out);
      Set("type", Value("function"), &out);
      Set("function", MakeDict(std::move(function)), &out);
      calls.push_back(MakeDict(std::move(out)));
    }
    marks_ = marks;
    return Value::MakeList(std::move(calls));
  }

  // Templates expect an object. A model may have written something else, or an object that was cut, and the
  // conversation must be able to continue, so these become an empty object, as in vLLM.
  Value ReadArguments(const v1::ToolCall& call, const std::string& path) {
    absl::StatusOr<Value> arguments = jinja::ParseJson(call.arguments(), marks_, &num_json_values_left_);
    if (arguments.ok() && arguments->as_dict() != nullptr) return *std::move(arguments);
    if (num_json_values_left_ < 0) Add(path, std::string(arguments.status().message()));
    return MakeDict(Dict());
  }

  void ReadTools(ChatTemplate::Input* input) {
    if (chat_.tools().empty()) return;
    const std::optional<Value> tools = Json(chat_.tools(), "tools");
    if (!tools.has_value()) return;
    if (tools->as_list() == nullptr) return Add("tools", "is not a JSON array");
    if (!tools->as_list()->items.empty()) input->tools = *tools;
  }

  void ReadKwargs(ChatTemplate::Input* input) {
    if (chat_.template_kwargs().empty()) return;
    const std::optional<Value> kwargs = Json(chat_.template_kwargs(), "template_kwargs");
    if (!kwargs.has_value()) return;
    if (kwargs->as_dict() == nullptr) return Add("template_kwargs", "is not a JSON object");
    for (const auto& [key, value] : kwargs->as_dict()->entries) {
      const std::string& name = key.as_text()->bytes;
      if (name == "messages" || name == "tools" || name == "add_generation_prompt") {
        Add("template_kwargs", absl::StrCat("has \"", name, "\", which has a field of its own"));
      }
      input->more.emplace_back(name, value);
    }
  }

  std::optional<Value> Json(const std::string& text, const std::string& path) {
    if (!IsValidUtf8(text)) {
      Add(path, "is not valid UTF-8");
      return std::nullopt;
    }
    absl::StatusOr<Value> value = jinja::ParseJson(text, marks_, &num_json_values_left_);
    if (value.ok()) return *std::move(value);
    Add(path, std::string(value.status().message()));
    return std::nullopt;
  }

  Value Text(const std::string& text, const std::string& path) {
    if (IsValidUtf8(text)) {
      jinja::TextBuilder builder;
      builder.Append(text, /*from_user=*/marks_);
      return Value(builder.Take());
    }
    Add(path, "is not valid UTF-8");
    return Value();
  }

  void Add(const std::string& path, std::string description) {
    errors_->Add(absl::StrCat(field_, ".", path), std::move(description));
    has_error_ = true;
  }

  const v1::Chat& chat_;
  const ChatTemplate& template_;
  const Absent absent_;
  const std::string& field_;
  FieldErrors* const errors_;
  int num_json_values_left_ = jinja::kMaxJsonValues;  // Number left for the whole conversation.
  const v1::PrefixPin* beginning_ = nullptr;          // Null: everything is marked.
  // What is read now.
  bool marks_ = true;
  int num_marked_parts_ = INT_MAX;
  int num_marked_calls_ = INT_MAX;
  bool has_tools_ = false;
  bool has_error_ = false;
};

// Returns where `part` begins for the last time in what users have written, or npos. Takes linear time, because clients
// choose both texts: the time of std::string::rfind can be the product of their lengths.
size_t FindLastOfUser(std::string_view part, const jinja::Text& text) {
  const std::string backwards(part.rbegin(), part.rend());
  for (auto range = text.user.rbegin(); range != text.user.rend(); ++range) {
    const std::string_view bytes = std::string_view(text.bytes).substr(range->begin, range->end - range->begin);
    if (bytes.size() < part.size()) continue;
    const std::string written(bytes.rbegin(), bytes.rend());
    const void* const found = memmem(written.data(), written.size(), backwards.data(), backwards.size());
    if (found == nullptr) continue;
    return range->end - static_cast<size_t>(static_cast<const char*>(found) - written.data()) - part.size();
  }
  return std::string::npos;
}

// Cuts the text behind the last message, as Transformers does: behind its content with the space around it if the
// template has kept that, and else behind its content without. Unlike there, text of the template is not taken for the
// content. Returns false when the content is not there. REQUIRES: it is not blank.
bool CutAfterFinalMessage(const std::string& content, jinja::Text* text) {
  const jinja::Range kept = jinja::Strip(content, /*chars=*/nullptr, /*left=*/true, /*right=*/true);
  const std::string_view stripped = std::string_view(content).substr(kept.begin, kept.end - kept.begin);
  const size_t begin = FindLastOfUser(stripped, *text);
  if (begin == std::string::npos) return false;
  const std::string_view with_space = std::string_view(content).substr(kept.begin);
  const bool keeps_space = std::string_view(text->bytes).substr(begin, with_space.size()) == with_space;
  *text = jinja::Slice(*text, 0, begin + (keeps_space ? with_space : stripped).size());
  return true;
}

// Returns whether every template writes the messages of this role somehow, or refuses them.
bool IsUsualRole(const std::string& role, const ChatTemplate& chat_template) {
  return role == "system" || role == "user" || role == "assistant" || (role == "tool" && chat_template.knows_tool()) ||
         (role == kDeveloper && !chat_template.knows_developer());
}

// Most templates leave messages out whose role they do not know. A client would not notice, so this is an error.
void CheckUnusualRoles(const v1::Chat& chat, const ChatTemplate& chat_template, const jinja::Text& text,
                       const std::string& field, FieldErrors* errors) {
  int num_left = kMaxUnusualRoles;  // Each needs time that grows with the text.
  for (int i = 0; i < chat.messages_size() && num_left > 0; ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    if (IsUsualRole(message.role(), chat_template) || IsBlank(LastText(message))) continue;
    --num_left;
    const std::string& last = LastText(message);
    const jinja::Range kept = jinja::Strip(last, /*chars=*/nullptr, /*left=*/true, /*right=*/true);
    const std::string_view content = std::string_view(last).substr(kept.begin, kept.end - kept.begin);
    if (FindLastOfUser(content, text) != std::string::npos) continue;
    errors->Add(absl::StrCat(field, ".messages[", i, "].role"),
                absl::StrCat("is ", Quoted(message.role()),
                             ", and the chat template leaves the message out; it must be system, developer, user, "
                             "assistant or tool, or another role that the template knows"));
  }
}

absl::Status CheckModel(const ServedModel& model, const std::string& field) {
  if (!model.chat_template.ok()) {
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat(field, ": needs the chat template of the model, which cannot be used: ",
                                       std::string(model.chat_template.status().message()))),
                      "BAD_CHAT_TEMPLATE");
  }
  if (*model.chat_template != nullptr) return absl::OkStatus();
  return WithReason(absl::FailedPreconditionError(absl::StrCat(
                        field,
                        ": needs a chat template, and the model's checkpoint came without one: send text, or put "
                        "chat_template.jinja beside the weights; a GGUF file has it in tokenizer.chat_template")),
                    "NO_CHAT_TEMPLATE");
}

size_t NumBytes(const v1::Chat& chat) {
  size_t num_bytes = chat.tools().size() + chat.template_kwargs().size();
  for (const v1::ChatMessage& message : chat.messages()) {
    num_bytes += message.role().size() + message.content().size() + message.tool_call_id().size() +
                 message.name().size() + message.reasoning_content().size() + message.thinking().size() +
                 message.reasoning().size();
    for (const std::string& part : message.content_parts()) num_bytes += part.size();
    for (const v1::ToolCall& call : message.tool_calls()) {
      num_bytes += call.id().size() + call.name().size() + call.arguments().size();
    }
  }
  return num_bytes;
}

// At least the number of elements that all lists and objects of a JSON text have.
size_t NumElements(const std::string& json) {
  return std::count_if(json.begin(), json.end(), [](char c) { return c == ',' || c == '[' || c == '{'; });
}

}  // namespace

// A template may go through all messages, or through all elements of the tools, at each message. A step of it takes
// about as long as tokenizing a byte.
size_t TextWork(const v1::Chat& chat) {
  constexpr size_t kBytesPerMessage = 16;
  size_t num_messages = chat.messages_size();
  for (const v1::ChatMessage& message : chat.messages()) {
    num_messages += message.tool_calls_size() + message.content_parts_size();
  }
  const size_t num_steps =
      num_messages * (num_messages + NumElements(chat.tools()) + NumElements(chat.template_kwargs()));
  return NumBytes(chat) + kBytesPerMessage * num_messages + num_steps;
}

absl::StatusOr<jinja::Text> RenderChat(const v1::Chat& chat, const ServedModel& model, size_t max_bytes,
                                       const std::string& field, FieldErrors* errors) {
  if (const absl::Status status = CheckModel(model, field); !status.ok()) return status;
  if (const size_t num_bytes = NumBytes(chat); num_bytes > max_bytes) {
    errors->Add(field, absl::StrCat("has ", num_bytes, " bytes, at most ", max_bytes, " are allowed"));
    return jinja::Text();
  }
  const ChatTemplate& chat_template = **model.chat_template;
  const auto render = [&](Absent absent, bool has_tools) -> absl::StatusOr<jinja::Text> {
    std::optional<ChatTemplate::Input> input = ChatReader(chat, chat_template, absent, field, errors).Read();
    if (!input.has_value()) return jinja::Text();
    if (!has_tools) input->tools = jinja::None();
    return chat_template.Render(*std::move(input), max_bytes);
  };
  absl::StatusOr<jinja::Text> text = render(Absent::kMissing, /*has_tools=*/true);
  if (!text.ok() && std::any_of(chat.messages().begin(), chat.messages().end(), LacksContent)) {
    absl::StatusOr<jinja::Text> with_empty = render(Absent::kEmptyText, /*has_tools=*/true);
    if (with_empty.ok()) text = std::move(with_empty);
  }
  if (!text.ok()) {
    const bool refuses_tools = !chat.tools().empty() && render(Absent::kEmptyText, /*has_tools=*/false).ok();
    errors->Add(refuses_tools ? absl::StrCat(field, ".tools") : field,
                absl::StrCat("is refused by the chat template: ", std::string(text.status().message())));
  }
  if (!errors->empty()) return jinja::Text();
  CheckUnusualRoles(chat, chat_template, *text, field, errors);
  if (!errors->empty()) return jinja::Text();
  if (chat.continue_final_message() && !CutAfterFinalMessage(LastText(*chat.messages().rbegin()), &*text)) {
    errors->Add(absl::StrCat(field, ".continue_final_message"),
                "is set, but the chat template does not write the content of the last message as it is");
    return jinja::Text();
  }
  return text;
}

// A template gives the same text whatever is marked, so the last mark is where the beginning ends.
std::vector<size_t> PrefixEnds(const v1::Chat& chat, const google::protobuf::RepeatedPtrField<v1::PrefixPin>& pins,
                               const ServedModel& model, const jinja::Text& text, size_t max_bytes) {
  const ChatTemplate& chat_template = **model.chat_template;
  std::vector<size_t> ends(pins.size(), 0);
  for (int i = 0; i < pins.size(); ++i) {
    for (const Absent absent : {Absent::kMissing, Absent::kEmptyText}) {  // As RenderChat has tried them.
      FieldErrors errors;
      ChatReader reader(chat, chat_template, absent, /*field=*/"", &errors);
      reader.MarkOnly(pins[i]);
      std::optional<ChatTemplate::Input> input = reader.Read();
      if (!input.has_value()) break;
      const absl::StatusOr<jinja::Text> marked = chat_template.Render(*std::move(input), max_bytes);
      if (!marked.ok()) continue;
      // The text may have the time, and may be cut in its last message.
      const auto differs =
          std::mismatch(text.bytes.begin(), text.bytes.end(), marked->bytes.begin(), marked->bytes.end());
      const size_t num_equal = differs.first - text.bytes.begin();
      ends[i] = marked->user.empty() ? 0 : std::min(marked->user.back().end, num_equal);
      break;
    }
  }
  return ends;
}

}  // namespace quire
