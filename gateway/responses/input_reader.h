// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_RESPONSES_INPUT_READER_H_
#define QUIRE_GATEWAY_RESPONSES_INPUT_READER_H_

#include <string>

#include "gateway/openai/api_error.h"
#include "gateway/openai/field_reader.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Reads the fields `instructions` and `input` into the messages of a chat. The thoughts, texts and calls of one answer
// are items of their own in `input`, and in a chat they are one message of the assistant.
class InputReader {
 public:
  // `chat` gets the messages, and `names` the field of each in their member `messages`.
  InputReader(v1::Chat* chat, ApiNames* names) : chat_(chat), names_(names) {}

  // Leaves an error when an item is wrong, or of a type that is not supported.
  void Read(FieldReader* fields);

 private:
  // The item that was read last.
  enum class Kind { kThoughts, kText, kCall, kOther };

  void ReadInput(FieldReader* fields);
  void ReadItem(const std::string& type, const std::string& place, FieldReader* item);
  void ReadMessage(const std::string& place, FieldReader* item);
  void ReadThoughts(const std::string& place, FieldReader* item);
  // Reads a call, whose arguments are in `arguments`, or whose input is in `input` if the tool is a custom one.
  void ReadCall(const std::string& place, bool is_custom, FieldReader* item);
  void ReadCallOutput(const std::string& place, FieldReader* item);
  v1::ChatMessage* Add(const std::string& role, const std::string& place);
  // Returns the message of the assistant that an item of this kind belongs to.
  v1::ChatMessage* Assistant(Kind kind, const std::string& place);

  v1::Chat* const chat_;
  ApiNames* const names_;
  Kind last_ = Kind::kOther;
  bool is_beginning_ = true;  // Nobody but the system has said anything.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_RESPONSES_INPUT_READER_H_
