// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_FIELD_READER_H_
#define QUIRE_GATEWAY_OPENAI_FIELD_READER_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/body_json.h"

namespace quire {

// What becomes of a field that this server does not know.
enum class UnknownFields { kRefuse, kIgnore };

// The unknown fields of a request that were ignored.
struct IgnoredFields {
  static constexpr size_t kMaxNames = 8;

  size_t count = 0;
  std::vector<std::string> names = {};  // The paths of the first ones, at most kMaxNames.
};

// Reads the fields of a JSON object. A field that is null counts as missing. The first field with a wrong type or value
// leaves an error with its name; later calls may still be made. Every field that nobody asked for is an error at the
// end, or is noted, so nothing is ignored silently.
class FieldReader {
 public:
  // REQUIRES: `object` is an object and outlives the reader. `path` comes before the names in errors, such as
  // "stream_options.". If `ignored` is not null, it notes unknown fields, which are then no errors.
  explicit FieldReader(const Json& object, std::string path = "", IgnoredFields* ignored = nullptr);
  // Reads an object within the one of `parent`, which must outlive this reader and gets its error from RefuseOthers.
  FieldReader(const Json& object, std::string path, FieldReader* parent);

  // Returns nothing when the field is missing or wrong.
  const Json* Find(const char* name);
  std::optional<bool> Bool(const char* name);
  // A number, rounded to a float. A number above 0 stays above 0, and one below 0 below it.
  std::optional<float> Float(const char* name);
  std::optional<int64_t> Integer(const char* name, int64_t min, int64_t max);
  // A whole number from -2^63 to 2^64 - 1, as its 64 bits.
  std::optional<uint64_t> Bits(const char* name);
  std::optional<uint32_t> Count(const char* name, uint32_t min = 0, uint32_t max = UINT32_MAX) {
    return Cast(Integer(name, min, max));
  }
  std::optional<std::string> String(const char* name);
  // An object, whatever it contains.
  const Json* Object(const char* name);
  // The member of an object as Float. `path` is its name in errors.
  std::optional<float> FloatOf(const Json& value, absl::string_view path);
  // A list of token ids.
  std::vector<uint32_t> TokenIds(const char* name);
  // Returns whether the field is a list without entries.
  bool IsEmptyList(const char* name) { return Find(name) != nullptr && Find(name)->is_array() && Find(name)->empty(); }
  // A list of strings, or one string.
  std::vector<std::string> Strings(const char* name);

  // Accepts fields that make no difference.
  void Ignore(std::initializer_list<const char*> names);
  // Accepts a field with one of the values in this JSON list, which ask for nothing. Any other value leaves an error.
  void AcceptOnly(const char* name, const char* neutral, absl::string_view reason);
  // Leaves an error if a field that is not supported is there, and was not asked for before.
  void Refuse(const char* name, absl::string_view reason);
  // Leaves an error for every field that nobody asked for, or notes it. Call it last.
  void RefuseOthers();

  // Leaves the error if there was none before.
  void Fail(absl::string_view name, absl::string_view description);
  void Fail(ApiError error);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  static std::optional<uint32_t> Cast(std::optional<int64_t> value) {
    return value.has_value() ? std::optional<uint32_t>(static_cast<uint32_t>(*value)) : std::nullopt;
  }

  // Returns a number without a fraction. Leaves an error if it is none from `min` to `max`, or if it is so large and
  // written in such a way that its last digits may be lost.
  template <typename Number>
  std::optional<Number> Whole(const char* name, int64_t min, Number max);

  void NoteOthers();
  // If the error is about a field that is missing, and this one is spelled like it, says so in the message.
  void ExplainMissing(const std::string& unknown);

  const Json& object_;
  const std::string path_;
  IgnoredFields* const ignored_;  // Notes unknown fields. Null if they are refused.
  FieldReader* const parent_ = nullptr;
  std::vector<std::string> known_;  // The names that were asked for.
  std::optional<ApiError> error_;
};

// Returns whether the value is a number from 0 to 2^32 - 1.
bool IsTokenId(const Json& value);
// An error says this behind the value of what is none.
inline constexpr char kNoTokenId[] = ", it must be a token id, a whole number from 0 to 4294967295";

// Returns the text of JSON, in which bytes that are not UTF-8 are replaced by U+FFFD.
std::string Dump(const Json& json);

// "is a string", "is 7" and so on, for the message of an error.
std::string Describe(const Json& value);

// Reads a list of objects, each of which has a field `type`. Calls `read` with the type of each, its place and a reader
// of its fields: void(const std::string& type, const std::string& place, FieldReader* fields). `path` is the name of
// the list. An object without a type has the default one, if that is not null. An error is left in `parent`.
template <typename Read>
void ReadTypedList(const Json& list, const std::string& path, const char* default_type, FieldReader* parent,
                   Read read) {
  for (size_t i = 0; i < list.size() && !parent->error().has_value(); ++i) {
    const std::string place = absl::StrCat(path, "[", i, "]");
    if (!list[i].is_object())
      return parent->Fail(FieldError(place, absl::StrCat(Describe(list[i]), ", it must be an object")));
    FieldReader fields(list[i], place + ".", parent);
    std::optional<std::string> type = fields.String("type");
    if (!type.has_value() && default_type != nullptr) type = default_type;
    if (!type.has_value()) fields.Fail("type", "is missing");
    if (!fields.error().has_value()) read(*type, place, &fields);
    fields.RefuseOthers();
  }
}

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_FIELD_READER_H_
