// SPDX-License-Identifier: Apache-2.0

#include "client/library/utf8.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"

namespace quire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status CheckMessage(const Message& message, const std::string& prefix);

// Checks the value of a field, or one of its values if it is repeated.
absl::Status CheckValue(const Message& message, const FieldDescriptor* field, int i, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field->type() == FieldDescriptor::TYPE_STRING) {
    std::string unused;
    const std::string& text = field->is_repeated() ? reflection.GetRepeatedStringReference(message, field, i, &unused)
                                                   : reflection.GetStringReference(message, field, &unused);
    return CheckUtf8(text, path + ":");
  }
  return CheckMessage(
      field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i) : reflection.GetMessage(message, field),
      path + ".");
}

absl::Status CheckMessage(const Message& message, const std::string& prefix) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool has_text =
        field->type() == FieldDescriptor::TYPE_STRING || field->type() == FieldDescriptor::TYPE_MESSAGE;
    if (!has_text || field->is_map()) continue;  // The maps of requests have numbers.
    const std::string path = absl::StrCat(prefix, field->name());
    const int size = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      QUIRE_RETURN_IF_ERROR(
          CheckValue(message, field, i, field->is_repeated() ? absl::StrCat(path, "[", i, "]") : path));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckUtf8Fields(const Message& message) {
  return CheckMessage(message, "");
}

}  // namespace quire
