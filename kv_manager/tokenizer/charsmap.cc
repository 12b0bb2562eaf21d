// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/charsmap.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"

namespace quire {
namespace {

uint32_t ReadUint32(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  return byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
}

// A unit of a Darts-clone double array (2008, S. Yata). An inner unit holds the label of the edge that leads to it and
// the offset to its children; a leaf has bit 31 set and holds the value.
uint32_t Label(uint32_t unit) {
  return unit & (1u << 31 | 0xFF);
}
bool HasLeaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t Offset(uint32_t unit) {
  return (unit >> 10) << ((unit & 1u << 9) >> 6);
}
uint32_t LeafValue(uint32_t unit) {
  return unit & ~(1u << 31);
}

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Parse(std::string_view blob) {
  if (blob.size() < sizeof(uint32_t)) {
    return absl::InvalidArgumentError(absl::StrCat("charsmap has ", blob.size(), " bytes, it needs at least 4"));
  }
  const size_t trie_bytes = ReadUint32(blob);
  blob.remove_prefix(sizeof(uint32_t));
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes > blob.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("charsmap says that its trie has ", trie_bytes, " bytes, it has ", blob.size()));
  }
  Charsmap charsmap;
  charsmap.units_.reserve(trie_bytes / sizeof(uint32_t));
  for (size_t i = 0; i < trie_bytes; i += sizeof(uint32_t)) charsmap.units_.push_back(ReadUint32(blob.substr(i)));
  charsmap.replacements_ = blob.substr(trie_bytes);
  QUIRE_RETURN_IF_ERROR(CheckUtf8(charsmap.replacements_, "charsmap's replacements"));
  return charsmap;
}

std::optional<Charsmap::Match> Charsmap::Find(std::string_view text, bool is_longest) const {
  std::optional<Match> found;
  size_t node = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint32_t byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || Label(units_[node]) != byte) break;
    const bool has_leaf = HasLeaf(units_[node]);
    node ^= Offset(units_[node]);
    if (!has_leaf) continue;
    if (node >= units_.size()) break;
    const size_t begin = LeafValue(units_[node]);
    const bool is_character_start =
        begin < replacements_.size() && (static_cast<unsigned char>(replacements_[begin]) & 0xC0) != 0x80;
    if (!is_character_start) break;
    const size_t end = replacements_.find('\0', begin);
    found = Match{i + 1, std::string_view(replacements_).substr(begin, end == std::string::npos ? end : end - begin)};
    if (!is_longest) break;
  }
  return found;
}

}  // namespace quire
