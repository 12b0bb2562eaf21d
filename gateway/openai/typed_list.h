// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_TYPED_LIST_H_
#define QUIRE_GATEWAY_OPENAI_TYPED_LIST_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gateway/openai/field_reader.h"

namespace quire {

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

#endif  // QUIRE_GATEWAY_OPENAI_TYPED_LIST_H_
