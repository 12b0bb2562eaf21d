// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/unknown_fields.h"

#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kv_manager/requests/chat_prompt.h"

namespace quire {

void CheckUnknownFields(const google::protobuf::Message& message, const std::string& path, FieldErrors* errors) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    errors->Add(absl::StrCat(path, unknown.field(i).number()),
                absl::StrCat("field number ", unknown.field(i).number(), " of ", message.GetDescriptor()->full_name(),
                             " is not known to this server"));
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr || field->is_map()) continue;
    const std::string field_path = absl::StrCat(path, field->name());
    if (!field->is_repeated()) {
      CheckUnknownFields(reflection.GetMessage(message, field), absl::StrCat(field_path, "."), errors);
      continue;
    }
    // A field that has more elements is refused by the check of its own limit.
    const int num_checked = std::min(reflection.FieldSize(message, field), kMaxMessages);
    for (int i = 0; i < num_checked; ++i) {
      const google::protobuf::Message& element = reflection.GetRepeatedMessage(message, field, i);
      CheckUnknownFields(element, absl::StrCat(field_path, "[", i, "]."), errors);
    }
  }
}

}  // namespace quire
