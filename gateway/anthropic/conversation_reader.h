// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_ANTHROPIC_CONVERSATION_READER_H_
#define QUIRE_GATEWAY_ANTHROPIC_CONVERSATION_READER_H_

#include <set>
#include <string>

#include "gateway/anthropic/cache_breakpoints.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/field_reader.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Reads the fields `system` and `messages` into the messages of a chat. The content of a message is a text or a list of
// blocks. In a chat, the result of a tool is a message of its own, so a message of the client may become several.
class ConversationReader {
 public:
  // `chat` gets the messages, and `names` the field of each in their member `messages`.
  ConversationReader(v1::Chat* chat, ApiNames* names) : chat_(chat), names_(names) {}

  // Leaves an error when a block is wrong, or of a type that is not supported. An answer of the model that comes last
  // is continued, unless it calls tools.
  void Read(FieldReader* fields);

  // The breakpoints of the blocks, in their order.
  const CacheBreakpoints& breakpoints() const { return breakpoints_; }

  // The names of the tools that results of tools refer to.
  const std::set<std::string>& referenced_tools() const { return referenced_tools_; }

 private:
  // Calls `read` with the type of each block in the list, its place, and a reader of its fields, and then notes its
  // breakpoint, if it has one. `place_now` returns the pin of the conversation up to there.
  template <typename BlockReader, typename PlaceNow>
  void ReadBlocks(const Json& list, const std::string& path, FieldReader* parent, BlockReader read, PlaceNow place_now);
  // The same for blocks of the last message.
  template <typename BlockReader>
  void ReadBlocks(const Json& list, const std::string& path, FieldReader* parent, BlockReader read);

  void ReadSystem(FieldReader* fields);
  void ReadMessages(FieldReader* fields);
  void ReadMessage(const Json& json, const std::string& path, FieldReader* parent);
  // Reads a block that is no text, in a message with this role.
  void ReadBlock(const std::string& type, const std::string& path, const std::string& role, FieldReader* block);
  void ReadThinking(FieldReader* block);
  void ReadToolUse(FieldReader* block);
  void ReadToolResult(const std::string& path, FieldReader* block);
  // Reads a block that loads a tool, into the message of its result.
  void ReadToolReference(FieldReader* block, v1::ChatMessage* message);
  v1::ChatMessage* Add(const std::string& role, const std::string& path);
  v1::ChatMessage* last() { return &*chat_->mutable_messages()->rbegin(); }

  v1::Chat* const chat_;
  ApiNames* const names_;
  std::set<std::string> referenced_tools_;
  CacheBreakpoints breakpoints_;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_ANTHROPIC_CONVERSATION_READER_H_
