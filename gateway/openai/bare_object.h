// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_BARE_OBJECT_H_
#define QUIRE_GATEWAY_OPENAI_BARE_OBJECT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/parameter_types.h"

namespace quire {

// Translates an object with bare keys and with strings between tags to JSON, as its text comes. With the tag <|"|>,
// {a:1,s:<|"|>x<|"|>,l:[true]} becomes {"a": 1, "s": "x", "l": [true]}. The text comes from a model, so it need not be
// such an object; no character of a key or a value is lost then. Keys and strings may also be those of JSON.
class BareObject {
 public:
  // `quote` is the tag before and behind a string. It must outlive the object.
  explicit BareObject(absl::string_view quote) : quote_(quote) {}

  // Begins a new object, whose members have these types. Null: they are not known. They must outlive the object.
  void Reset(const ParameterTypes* types);

  // Takes the bytes of `text` that belong to the object, appends what they add to the JSON, and returns their number. A
  // tag that has not come whole waits, unless `is_last`. REQUIRES: the first byte after Reset is '{'.
  size_t Add(absl::string_view text, bool is_last, std::string* json);

  bool is_complete() const { return has_begun_ && brackets_.empty(); }

 private:
  enum class State {
    kKey,     // A key or the end of the object comes.
    kName,    // The bare key comes.
    kColon,   // The key was a string. What is before its value comes.
    kValue,   // A value comes, or the end of a list.
    kString,  // The string comes, between tags.
    kJson,    // The string of JSON comes.
    kBare,    // A value without quotes comes.
    kAfter,   // What is behind a value comes.
  };

  void Take(char c, std::string* json);
  void TakeQuote(std::string* json);
  void BeginString(State state, std::string* json);
  void EndString(std::string* json);
  void BeginValue(std::string* json);
  // Adds the key in text_, and continues with its value.
  void EndName(std::string* json);
  void EndBare(std::string* json);
  void Open(char bracket, std::string* json);
  void Close(std::string* json);
  // Adds what was read of a key or a value that does not end.
  void Flush(std::string* json);
  bool IsInObject() const { return brackets_.back() == '{'; }

  absl::string_view quote_;
  const ParameterTypes* types_ = nullptr;
  std::string brackets_;  // That are open.
  State state_ = State::kKey;
  bool has_begun_ = false;
  bool needs_comma_ = false;  // The object or the list has an entry.
  bool is_key_ = false;       // The string is a key.
  bool is_escaped_ = false;   // The last character of a string of JSON was a backslash.
  std::string text_;          // Of the bare key or value, so far.
  JsonTypes value_types_ = kAnyType;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_BARE_OBJECT_H_
