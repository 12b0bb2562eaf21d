// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace quire {
namespace {

bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Table {
  std::array<std::string, 256> characters;
  std::array<int, 0x144> bytes;

  Table() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t c = StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
      AppendUtf8(c, &characters[byte]);
      bytes[c] = byte;
    }
  }
};

const Table& GetTable() {
  static const Table* const table = new Table();
  return *table;
}

}  // namespace

const std::string& ByteLevelCharacter(unsigned char byte) {
  return GetTable().characters[byte];
}

int ByteOfByteLevelCharacter(char32_t c) {
  const auto& bytes = GetTable().bytes;
  return c < bytes.size() ? bytes[c] : -1;
}

}  // namespace quire
