// SPDX-License-Identifier: Apache-2.0

#include "grammar/code_points.h"

#include <algorithm>

namespace quire::grammar {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kLastSurrogate = 0xDFFF;

// The last character that has 1, 2, 3 and 4 bytes.
constexpr uint32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF, kMaxCodePoint};

int Encode(uint32_t c, uint8_t* out) {
  if (c <= 0x7F) {
    out[0] = static_cast<uint8_t>(c);
    return 1;
  }
  const int length = c <= 0x7FF ? 2 : c <= 0xFFFF ? 3 : 4;
  for (int i = length - 1; i > 0; --i) {
    out[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
    c >>= 6;
  }
  out[0] = static_cast<uint8_t>((0xF00 >> length) | c);
  return length;
}

}  // namespace

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> parts;
  for (const auto& [first, last] : ranges) {
    if (first < kFirstSurrogate) parts.push_back({first, std::min(last, kFirstSurrogate - 1)});
    if (last > kLastSurrogate) parts.push_back({std::max(first, kLastSurrogate + 1), std::min(last, kMaxCodePoint)});
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const CodePointRange& part : parts) {
    if (part.first > part.last) continue;
    if (!ranges_.empty() && part.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, part.last);
    } else {
      ranges_.push_back(part);
    }
  }
}

CodePointSet CodePointSet::Complement() const {
  std::vector<CodePointRange> rest;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) rest.push_back({next, first - 1});
    next = last + 1;
  }
  if (next <= kMaxCodePoint) rest.push_back({next, kMaxCodePoint});
  return CodePointSet(std::move(rest));
}

CodePointSet CodePointSet::Union(const CodePointSet& other) const {
  std::vector<CodePointRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(both));
}

CodePointSet CodePointSet::Intersection(const CodePointSet& other) const {
  return Complement().Union(other.Complement()).Complement();
}

bool CodePointSet::Contains(uint32_t code_point) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [=](const auto& range) { return range.first <= code_point && code_point <= range.last; });
}

// A range is cut where the number of bytes changes, and then where the last bytes do not cover all of their values.
void AppendUtf8Sequences(CodePointRange range, std::vector<ByteSequence>* out) {
  for (const uint32_t last : kLastOfLength) {
    if (range.first <= last && last < range.last) {
      AppendUtf8Sequences({range.first, last}, out);
      return AppendUtf8Sequences({last + 1, range.last}, out);
    }
  }
  for (int bits = 6; bits <= 18 && range.last > 0x7F; bits += 6) {
    const uint32_t mask = (1u << bits) - 1;
    if ((range.first & ~mask) == (range.last & ~mask)) break;
    if ((range.first & mask) != 0) {
      AppendUtf8Sequences({range.first, range.first | mask}, out);
      return AppendUtf8Sequences({(range.first | mask) + 1, range.last}, out);
    }
    if ((range.last & mask) != mask) {
      AppendUtf8Sequences({range.first, (range.last & ~mask) - 1}, out);
      return AppendUtf8Sequences({range.last & ~mask, range.last}, out);
    }
  }
  ByteSequence sequence;
  sequence.length = Encode(range.first, sequence.first);
  Encode(range.last, sequence.last);
  out->push_back(sequence);
}

}  // namespace quire::grammar
