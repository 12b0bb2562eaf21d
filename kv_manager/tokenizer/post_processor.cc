// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/post_processor.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kv_manager/tokenizer/vocabulary.h"

namespace quire {
namespace {

absl::StatusOr<TokenId> ParseId(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t id, json.AsInteger());
  if (id < 0 || id > kMaxTokenId) return json.Error(absl::StrCat("token id is ", id, ", ids are 0 to ", kMaxTokenId));
  return static_cast<TokenId>(id);
}

absl::StatusOr<PostProcessor> ParseTemplate(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const auto pieces, json.Array("single"));
  QUIRE_ASSIGN_OR_RETURN(const JsonValue special_tokens, json.Member("special_tokens"));
  PostProcessor processor;
  int num_prompts = 0;
  for (const JsonValue& piece : pieces) {
    QUIRE_ASSIGN_OR_RETURN(const JsonValue sequence, piece.Find("Sequence"));
    if (!sequence.is_null()) {
      QUIRE_ASSIGN_OR_RETURN(const JsonValue id, sequence.Member("id"));
      if (id.raw() != "A") return id.Error("must be \"A\", the only sequence of \"single\"");
      ++num_prompts;
      continue;
    }
    QUIRE_ASSIGN_OR_RETURN(const JsonValue special, piece.Member("SpecialToken"));
    QUIRE_ASSIGN_OR_RETURN(const std::string_view name, special.String("id"));
    QUIRE_ASSIGN_OR_RETURN(const JsonValue token, special_tokens.Member(name));
    QUIRE_ASSIGN_OR_RETURN(const auto ids, token.Array("ids"));
    for (const JsonValue& id_json : ids) {
      QUIRE_ASSIGN_OR_RETURN(const TokenId id, ParseId(id_json));
      (num_prompts == 0 ? processor.prefix : processor.suffix).push_back(id);
    }
  }
  if (num_prompts != 1) return json.Error(absl::StrCat("\"single\" uses the prompt ", num_prompts, " times, not once"));
  return processor;
}

// BertProcessing and RobertaProcessing: {"cls": [content, id], "sep": [content, id]}.
absl::StatusOr<PostProcessor> ParseClassification(const JsonValue& json) {
  PostProcessor processor;
  for (const auto& [key, ids] : {std::pair("cls", &processor.prefix), std::pair("sep", &processor.suffix)}) {
    QUIRE_ASSIGN_OR_RETURN(const auto pair, json.Array(key));
    if (pair.size() != 2) return json.Error(absl::StrCat("\"", key, "\" must be [content, id]"));
    QUIRE_ASSIGN_OR_RETURN(const TokenId id, ParseId(pair[1]));
    ids->push_back(id);
  }
  return processor;
}

absl::StatusOr<PostProcessor> ParsePostProcessorSequence(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const auto elements, json.Array("processors"));
  PostProcessor all;
  for (const JsonValue& element : elements) {
    QUIRE_ASSIGN_OR_RETURN(const PostProcessor step, PostProcessor::Parse(element));
    all.prefix.insert(all.prefix.begin(), step.prefix.begin(), step.prefix.end());
    all.suffix.insert(all.suffix.end(), step.suffix.begin(), step.suffix.end());
  }
  return all;
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::Parse(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view type, json.String("type"));
  if (type == "TemplateProcessing") return ParseTemplate(json);
  if (type == "Sequence") return ParsePostProcessorSequence(json);
  if (type == "BertProcessing" || type == "RobertaProcessing") return ParseClassification(json);
  if (type == "ByteLevel") return PostProcessor();  // It only moves offsets.
  return json.Error(absl::StrCat("post-processor type \"", std::string(type), "\" is not supported"));
}

}  // namespace quire
