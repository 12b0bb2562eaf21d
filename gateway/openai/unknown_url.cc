// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/unknown_url.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace quire {
namespace {

// Something that other servers have at a path, and at the paths below it.
struct NotServed {
  absl::string_view path;
  absl::string_view what;
  absl::string_view instead = "";  // What to use here, if there is something.
};

constexpr absl::string_view kChats = "use /v1/chat/completions";

// Paths of OpenAI, Anthropic and vLLM. A longer path stands before its beginning.
constexpr NotServed kNotServed[] = {
    {"/v1/responses/compact", "this shortening of conversations", "send a shorter input to /v1/responses"},
    {"/v1/responses/input_tokens", "this count of tokens", "use /tokenize"},
    {"/v1/responses", "stored responses", "send all items to /v1/responses"},
    {"/v1/messages/batches", "a batch interface", "send each request to /v1/messages"},
    {"/v1/messages", "stored messages"},
    {"/v1/assistants", "the Assistants interface", kChats},
    {"/v1/threads", "the Assistants interface", kChats},
    {"/v1/conversations", "stored conversations", "send all items to /v1/responses"},
    {"/v1/chat/completions/render", "this rendering of prompts", "use /tokenize"},
    {"/v1/chat/completions", "stored answers"},
    {"/v2/embed", "Cohere's embeddings", "use /v1/embeddings"},
    {"/pooling", "other poolings", "use /v1/embeddings"},
    {"/classify", "classification"},
    {"/v1/moderations", "moderation"},
    {"/v1/audio", "audio"},
    {"/v1/realtime", "the Realtime interface", "use /v1/chat/completions with \"stream\": true"},
    {"/v1/images", "images"},
    {"/v1/videos", "videos"},
    {"/v1/batches", "a batch interface", "send each request to /v1/completions or /v1/chat/completions"},
    {"/v1/files", "stored files"},
    {"/v1/uploads", "stored files"},
    {"/v1/vector_stores", "stored files"},
    {"/v1/fine_tuning", "fine-tuning"},
    {"/v1/load_lora_adapter", "LoRA adapters"},
    {"/v1/unload_lora_adapter", "LoRA adapters"},
};

// Returns whether `path` is `parent` or a path below it.
bool IsWithin(absl::string_view path, absl::string_view parent) {
  return absl::ConsumePrefix(&path, parent) && (path.empty() || path[0] == '/');
}

// Returns what the message says besides the path.
std::string Advice(absl::string_view path, const std::vector<absl::string_view>& known) {
  const absl::string_view asked = absl::StripSuffix(path, "/");
  if (asked == "/v1") return ": this is the base URL of OpenAI's clients; /v1/models shows what is served";
  absl::string_view nearest;  // The longest one.
  for (const absl::string_view candidate : known) {
    if (candidate.size() < 2 || candidate.size() <= nearest.size()) continue;
    if (absl::StrCat("/v1", asked) == candidate || absl::EndsWith(asked, candidate)) nearest = candidate;
  }
  if (!nearest.empty()) return absl::StrCat("; did you mean ", nearest, "?");
  for (const NotServed& other : kNotServed) {
    if (!IsWithin(asked, other.path) && !IsWithin(absl::StrCat("/v1", asked), other.path)) continue;
    return absl::StrCat(": this server does not have ", other.what, other.instead.empty() ? "" : "; ", other.instead);
  }
  return "";
}

}  // namespace

ApiError UnknownUrl(absl::string_view path, const std::vector<absl::string_view>& known) {
  return {.http_code = 404,
          .message = absl::StrCat("there is nothing at ", path, Advice(path, known)),
          .type = "not_found_error",
          .code = "unknown_url"};
}

}  // namespace quire
