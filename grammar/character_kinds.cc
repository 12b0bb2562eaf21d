// SPDX-License-Identifier: Apache-2.0

#include "grammar/character_kinds.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace quire::grammar {
namespace {

static_assert(ByteTrie::kMaxTextBytes < (size_t{1} << 16), "characters are counted in 16 bits");

// Names the bytes that must follow a byte so that the character is whole.
enum class Rest : uint8_t { kNone, kOne, kTwo, kThree, kAfterE0, kAfterED, kAfterF0, kAfterF4, kBroken };

Rest RestAfterLead(uint8_t byte) {
  if (byte < 0x80) return Rest::kNone;
  if (byte >= 0xC2 && byte <= 0xDF) return Rest::kOne;
  if (byte == 0xE0) return Rest::kAfterE0;
  if (byte == 0xED) return Rest::kAfterED;
  if (byte >= 0xE1 && byte <= 0xEF) return Rest::kTwo;
  if (byte == 0xF0) return Rest::kAfterF0;
  if (byte >= 0xF1 && byte <= 0xF3) return Rest::kThree;
  if (byte == 0xF4) return Rest::kAfterF4;
  return Rest::kBroken;
}

Rest RestAfter(Rest before, uint8_t byte) {
  const auto within = [byte](uint8_t first, uint8_t last, Rest rest) {
    return byte >= first && byte <= last ? rest : Rest::kBroken;
  };
  switch (before) {
    case Rest::kNone:
      return RestAfterLead(byte);
    case Rest::kOne:
      return within(0x80, 0xBF, Rest::kNone);
    case Rest::kTwo:
      return within(0x80, 0xBF, Rest::kOne);
    case Rest::kThree:
      return within(0x80, 0xBF, Rest::kTwo);
    case Rest::kAfterE0:
      return within(0xA0, 0xBF, Rest::kOne);
    case Rest::kAfterED:
      return within(0x80, 0x9F, Rest::kOne);
    case Rest::kAfterF0:
      return within(0x90, 0xBF, Rest::kTwo);
    case Rest::kAfterF4:
      return within(0x80, 0x8F, Rest::kTwo);
    case Rest::kBroken:
      break;
  }
  return Rest::kBroken;
}

}  // namespace

const std::array<CharacterKinds, 128>& KindsOfAscii() {
  static const auto* const kinds = [] {
    auto* all = new std::array<CharacterKinds, 128>();
    int next = 7;
    for (size_t c = 0; c < 128; ++c) {
      const auto byte = static_cast<unsigned char>(c);
      int bit = 0;
      if (absl::ascii_islower(byte)) {
        bit = 0;
      } else if (absl::ascii_isupper(byte)) {
        bit = 1;
      } else if (absl::ascii_isdigit(byte)) {
        bit = 2;
      } else if (byte == '\n') {
        bit = 3;
      } else if (byte == '\t') {
        bit = 4;
      } else if (byte == '\r') {
        bit = 5;
      } else if (absl::ascii_iscntrl(byte)) {
        bit = 6;
      } else {
        bit = next++;  // 33 marks, with the space.
      }
      (*all)[c] = CharacterKinds{1} << bit;
    }
    return all;
  }();
  return *kinds;
}

SuffixTable::SuffixTable(const ByteTrie& trie)
    : suffixes_(static_cast<size_t>(trie.num_nodes())),
      node_characters_(suffixes_.size()),
      token_characters_(static_cast<size_t>(trie.num_tokens())) {
  std::vector<Rest> rests(suffixes_.size());  // Each node has what follows its text.
  const auto read_byte = [&](int node, Rest before, int num_characters) {
    const Rest rest = RestAfter(before, trie.node(node).byte);
    if (rest == Rest::kNone) ++num_characters;
    rests[static_cast<size_t>(node)] = rest;
    node_characters_[static_cast<size_t>(node)] = static_cast<uint16_t>(num_characters);
    const int first = trie.node(node).first_token;
    std::fill_n(token_characters_.begin() + first, trie.tokens(node).size(), static_cast<uint16_t>(num_characters));
  };
  for (int i = 0; i < trie.num_roots(); ++i) read_byte(i, Rest::kNone, 0);
  for (int i = 0; i < trie.num_nodes(); ++i) {
    const ByteTrie::Node& node = trie.node(i);
    for (int child = node.first_child; child < node.first_child + node.num_children; ++child) {
      read_byte(child, rests[static_cast<size_t>(i)], characters(i));
    }
  }
  std::vector<CharacterKinds> kinds_below(suffixes_.size());
  for (int i = trie.num_nodes(); i-- > 0;) {
    const ByteTrie::Node& node = trie.node(i);
    CharacterKinds kinds = 0;
    int max_characters = 0;
    for (int child = node.first_child; child < node.first_child + node.num_children; ++child) {
      const Rest rest = rests[static_cast<size_t>(child)];
      const uint8_t byte = trie.node(child).byte;
      kinds |= kinds_below[static_cast<size_t>(child)];
      if (rest == Rest::kNone) {
        kinds |= byte < 0x80 ? KindsOfAscii()[byte] : kBeyondAscii;
      } else if (rest == Rest::kBroken || !trie.tokens(child).empty()) {
        kinds |= kBrokenText;
      }
      max_characters = std::max(max_characters, of(child).max_characters + (rest == Rest::kNone ? 1 : 0));
    }
    kinds_below[static_cast<size_t>(i)] = kinds;
    if (rests[static_cast<size_t>(i)] != Rest::kNone) kinds |= kBrokenText;
    suffixes_[static_cast<size_t>(i)] = {kinds, max_characters};
  }
}

}  // namespace quire::grammar
