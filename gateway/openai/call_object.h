// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_CALL_OBJECT_H_
#define QUIRE_GATEWAY_OPENAI_CALL_OBJECT_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/field_reader.h"

namespace quire {

// Reads the JSON object of a call, {"name": ..., "arguments": {...}}, as its text comes. "parameters" means the same as
// "arguments". If it is keyed, the object is {NAME: {...}} instead. The text comes from a model, so it need not be
// JSON; only brackets and strings are followed.
class CallObject {
 public:
  explicit CallObject(bool is_keyed = false) : is_keyed_(is_keyed) {}

  // Forgets what was taken.
  void Reset() { *this = CallObject(is_keyed_); }

  // Takes the bytes of `text` that belong to the object, and returns their number. REQUIRES: the first byte of the
  // first call is '{'.
  size_t Add(absl::string_view text);

  bool is_complete() const { return !raw_.empty() && depth_ == 0; }
  // Everything that was taken.
  const std::string& raw() const { return raw_; }
  // The value of "name", once it has come.
  const std::optional<std::string>& name() const { return name_; }
  // Returns whether the arguments have begun as an object.
  bool has_arguments() const { return arguments_begin_ != std::string::npos; }
  // Returns what the text of the arguments has got since the last call.
  std::string TakeArguments();

 private:
  bool IsArguments() const;
  void Scan(size_t i);
  void EndString(size_t end);

  bool is_keyed_;
  std::string raw_;
  int depth_ = 0;
  bool is_string_ = false;
  bool is_escaped_ = false;
  bool is_value_ = false;  // The place is between a colon and the next comma of the outer object.
  size_t string_begin_ = 0;
  std::string key_;  // The outer object has this key.
  std::optional<std::string> name_;
  size_t arguments_begin_ = std::string::npos;
  size_t arguments_end_ = std::string::npos;
  size_t num_taken_ = 0;  // Bytes of the arguments.
};

// A call that was read from the text of a whole object.
struct WholeCall {
  std::string name;
  std::string arguments;  // The text of a JSON object.
};

// Returns nothing when the text is not the JSON of a call. Arguments that are missing are an empty object, and a string
// is taken as the text of the object. Arguments that are no object make it no call.
std::optional<WholeCall> ParseWholeCall(const std::string& object, bool is_keyed = false);
std::optional<WholeCall> ParseWholeCall(const Json& object);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_CALL_OBJECT_H_
