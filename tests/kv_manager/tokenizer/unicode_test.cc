// SPDX-License-Identifier: Apache-2.0

// The places where Unicode versions and libraries differ. `tools/goldens/tokenizer_goldens.py unicode` compares all
// code points.

#include "kv_manager/tokenizer/unicode.h"

#include "base/utf8.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/unicode_tables.h"

namespace quire {
namespace {

std::string Lowercase(char32_t c) {
  std::string out;
  AppendLowercase(c, &out);
  return out;
}

TEST(UnicodeTest, PropertiesAreThoseOfTheReference) {
  EXPECT_TRUE(IsWhitespace(0x3000));
  EXPECT_FALSE(IsWhitespace(0x200B)) << "the zero width space is none";
  EXPECT_FALSE(IsWhitespace(0x180E));
  EXPECT_TRUE(IsNumeric(0xBD)) << "one half";
  EXPECT_TRUE(IsNumeric(0x11DE0)) << "Unicode 17";
  EXPECT_FALSE(IsNumeric(U'a'));
  EXPECT_TRUE(IsPunctuation(U'$')) << "every ASCII symbol";
  EXPECT_TRUE(IsPunctuation(0x3002));
  EXPECT_FALSE(IsPunctuation(0x2E52)) << "newer than Unicode 8";
  EXPECT_FALSE(IsPunctuation(0x20AC));
  EXPECT_TRUE(IsWordCharacter(0x301)) << "marks";
  EXPECT_TRUE(IsWordCharacter(0x200D)) << "joiners";
  EXPECT_TRUE(IsWordCharacter(0x24B6)) << "Other_Alphabetic";
  EXPECT_FALSE(IsWordCharacter(0xBD));
}

TEST(UnicodeTest, LowerCaseMayBeTwoCharacters) {
  EXPECT_EQ(Lowercase(0x130), "i\u0307");
  EXPECT_EQ(Lowercase(0x3A3), "\u03C3") << "without regard to the end of a word";
  EXPECT_EQ(Lowercase(0x10D51), "\U00010D71") << "Unicode 16";
}

TEST(UnicodeTest, NewCharactersKeepTheirLengthWhenTheyAreReplaced) {
  for (const Mapping& mapping : kKnownReplacement) {
    for (const char32_t c : {mapping.first, mapping.last}) {
      std::string text;
      AppendUtf8(c, &text);
      std::string storage;
      const std::string_view known = WithKnownCharacters(text, &storage);
      EXPECT_NE(known, text) << std::hex << static_cast<uint32_t>(c);
      EXPECT_EQ(known.size(), text.size());
    }
  }
  std::string storage;
  const std::string_view old = "a\u00E9\u4E2D\U0001F600";
  EXPECT_EQ(WithKnownCharacters(old, &storage).data(), old.data()) << "text without new characters is not copied";
}

TEST(UnicodeTest, GraphemeClustersStayTogether) {
  EXPECT_EQ(NextGraphemeBoundary("e\u0301x", 0), 3u);
  EXPECT_EQ(NextGraphemeBoundary("\r\nx", 0), 2u);
  EXPECT_EQ(NextGraphemeBoundary("a\u0897x", 0), 4u) << "a mark of Unicode 16";
  EXPECT_EQ(NextGraphemeBoundary("ab", 1), 2u);
}

}  // namespace
}  // namespace quire
