#include "client/utf8.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Bytes of the character at the start of `text`; 0 when it is ill-formed (Unicode, table 3-7: the second byte is
// restricted after E0, ED, F0 and F4).
size_t CharacterLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

absl::Status CheckField(const Message& message, const FieldDescriptor* field, const std::string& path) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
  for (int i = 0; i < size; ++i) {
    std::string unused;
    const std::string& text = field->is_repeated() ? reflection.GetRepeatedStringReference(message, field, i, &unused)
                                                   : reflection.GetStringReference(message, field, &unused);
    QUIRE_RETURN_IF_ERROR(CheckUtf8(text, field->is_repeated() ? absl::StrCat(path, "[", i, "]") : path));
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

absl::Status CheckUtf8(absl::string_view text, absl::string_view field) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterLength(text.substr(at));
    if (length == 0) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": is not valid UTF-8: byte ", at, " of ", text.size(),
                                                     " is 0x",
                                                     absl::Hex(static_cast<unsigned char>(text[at]), absl::kZeroPad2)));
    }
    at += length;
  }
  return absl::OkStatus();
}

absl::Status CheckUtf8(const Message& message) {
  return CheckMessage(message, "");
}

}  // namespace quire
