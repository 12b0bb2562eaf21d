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

absl::Status CheckField(const Message& message, const FieldDescriptor* field, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
  for (int i = 0; i < size; ++i) {
    std::string unused;
    const std::string& text = field->is_repeated() ? reflection.GetRepeatedStringReference(message, field, i, &unused)
                                                   : reflection.GetStringReference(message, field, &unused);
    QUIRE_RETURN_IF_ERROR(CheckUtf8(text, field->is_repeated() ? absl::StrCat(path, "[", i, "]:") : path + ":"));
  }
  return absl::OkStatus();
}

absl::Status CheckMessage(const Message& message, const std::string& prefix) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = absl::StrCat(prefix, field->name());
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      QUIRE_RETURN_IF_ERROR(CheckField(message, field, path));
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE && !field->is_repeated()) {
      QUIRE_RETURN_IF_ERROR(CheckMessage(message.GetReflection()->GetMessage(message, field), path + "."));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckUtf8Fields(const Message& message) {
  return CheckMessage(message, "");
}

}  // namespace quire
