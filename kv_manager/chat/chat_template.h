// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_CHAT_CHAT_TEMPLATE_H_
#define QUIRE_KV_MANAGER_CHAT_CHAT_TEMPLATE_H_

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/chat/answer_format.h"
#include "kv_manager/jinja/template.h"
#include "kv_manager/jinja/value.h"

namespace quire {

// The files of a checkpoint that can have its chat template. A string is empty when there is no such file.
struct ChatTemplateFiles {
  std::string_view chat_template_jinja = {};
  std::string_view chat_template_json = {};
  std::string_view tokenizer_config_json = {};  // It also names the special tokens.
  std::string_view special_tokens_map_json = {};
  // The names and texts of tokens that count if these files do not name them, such as ("bos_token", "<s>").
  std::vector<std::pair<std::string_view, std::string_view>> default_tokens = {};
  // The names and the contents of additional_chat_templates/NAME.jinja.
  std::vector<std::pair<std::string_view, std::string_view>> additional = {};
};

// Says how a model wants a conversation to be written as a prompt. Immutable; thread-safe.
class ChatTemplate {
 public:
  // What a template is rendered with, besides the special tokens of the checkpoint.
  struct Input {
    std::vector<jinja::Value> messages;
    jinja::Value tools = jinja::None();  // None: there are none.
    bool add_generation_prompt = true;
    // Further variables. They override variables of the same name above.
    std::vector<std::pair<std::string, jinja::Value>> more = {};
  };

  // Compiles the templates of chat_template.jinja ("default") and additional_chat_templates/NAME.jinja
  // ("NAME"), or else of tokenizer_config.json, or else of chat_template.json: a text, or templates with
  // names. Returns null when there is none. The errors name the file: INVALID_ARGUMENT, with line and
  // construct, when a template is not one.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Load(const ChatTemplateFiles& files);

  // Renders the template as Transformers' apply_chat_template does. Of named templates it takes "tool_use" when there
  // are tools, and else "default". INVALID_ARGUMENT, with line and construct, when the template refuses the
  // conversation or reaches a limit, one of which is `max_bytes` of text.
  absl::StatusOr<jinja::Text> Render(Input input, size_t max_bytes) const;

  // Returns whether the template that Render chooses writes the texts of a message of this role whose content is a list
  // of parts. Other templates expect a text.
  bool TakesParts(const std::string& role, bool has_tools) const;

  // Returns whether a template names the role. Otherwise it treats the role like any other name.
  bool knows_developer() const { return knows_developer_; }
  bool knows_tool() const { return knows_tool_; }

  // Returns how the model probably writes tool calls and thoughts.
  const AnswerFormat& answer_format() const { return answer_format_; }

 private:
  struct Named {
    std::unique_ptr<const jinja::Template> compiled;
    std::set<std::string> part_roles;  // The roles for which TakesParts holds.
  };

  ChatTemplate() = default;
  absl::StatusOr<const Named*> Choose(bool has_tools) const;
  absl::StatusOr<jinja::Text> RenderWith(const jinja::Template& compiled, Input input,
                                         jinja::RenderOptions options) const;
  std::set<std::string> FindPartRoles(const jinja::Template& compiled) const;

  std::map<std::string, Named> templates_;                     // The key is the name; a single one is "default".
  std::vector<std::pair<std::string, jinja::Value>> special_;  // "bos_token" and others that the checkpoint names.
  AnswerFormat answer_format_;
  bool knows_developer_ = false;
  bool knows_tool_ = false;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_CHAT_CHAT_TEMPLATE_H_
