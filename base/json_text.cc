// SPDX-License-Identifier: Apache-2.0

#include "base/json_text.h"

#include <string_view>

#include "base/utf8.h"

namespace quire {

void AppendJsonString(absl::string_view text, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string replaced;  // Holds `text` if bytes of it were replaced.
  if (const std::string_view bytes(text.data(), text.size()); !IsValidUtf8(bytes)) {
    Utf8Assembler assembler(Utf8Assembler::OnInvalid::kReplaceSubpart);
    assembler.Append(bytes, &replaced);
    assembler.Finish(&replaced);
    text = replaced;
  }
  out->push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        out->append("\\\"");
        break;
      case '\\':
        out->append("\\\\");
        break;
      case '\n':
        out->append("\\n");
        break;
      case '\r':
        out->append("\\r");
        break;
      case '\t':
        out->append("\\t");
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out->append("\\u00");
          out->push_back(kHex[static_cast<unsigned char>(c) >> 4]);
          out->push_back(kHex[c & 15]);
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

}  // namespace quire
