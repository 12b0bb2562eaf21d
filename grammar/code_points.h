// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_CODE_POINTS_H_
#define QUIRE_GRAMMAR_CODE_POINTS_H_

#include <cstdint>
#include <vector>

namespace quire::grammar {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

struct CodePointRange {
  uint32_t first;
  uint32_t last;

  bool operator==(const CodePointRange&) const = default;
};

// A set of characters: ranges that ascend and neither touch nor overlap. Surrogates are never in it, because UTF-8 has
// none.
class CodePointSet {
 public:
  CodePointSet() = default;
  // The ranges are in any order and may overlap.
  explicit CodePointSet(std::vector<CodePointRange> ranges);

  static CodePointSet All() { return CodePointSet({{0, kMaxCodePoint}}); }

  CodePointSet Complement() const;
  CodePointSet Union(const CodePointSet& other) const;
  CodePointSet Intersection(const CodePointSet& other) const;
  bool Contains(uint32_t code_point) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodePointRange>& ranges() const { return ranges_; }

 private:
  std::vector<CodePointRange> ranges_;
};

// A range of values for each byte of a character in UTF-8.
struct ByteSequence {
  int length;
  uint8_t first[4];  // [length]
  uint8_t last[4];   // [length]
};

// Appends sequences which together match exactly the characters of the range. REQUIRES: no surrogate is in it.
void AppendUtf8Sequences(CodePointRange range, std::vector<ByteSequence>* out);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_CODE_POINTS_H_
