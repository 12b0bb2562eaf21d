// SPDX-License-Identifier: Apache-2.0

#include "base/utf8.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::HasSubstr;

TEST(Utf8Test, IllFormedTextIsRefusedWithTheOffsetOfTheByte) {
  EXPECT_TRUE(CheckUtf8("a\xC3\xA9 \xF0\x9F\x98\x80", "text").ok());
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : {Case{"ab\xFF", "byte 2 of 3 is 0xff"},
                        {"a\xC3", "byte 1"},
                        {"\xED\xA0\x80", "byte 0"},
                        {"\xF4\x90\x80\x80", "byte 0"},
                        {"\xC0\x80", "byte 0"},
                        {"\xE2\x28\xA1", "byte 0"}}) {
    const absl::Status status = CheckUtf8(c.text, "text");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
}

TEST(Utf8Test, EveryLengthAndTheEdgesOfTheTableAreValid) {
  for (const char* text : {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "a\xE2\x82\xAC z"}) {
    EXPECT_TRUE(CheckUtf8(text, "text").ok()) << CheckUtf8(text, "text");
  }
}

TEST(Utf8Test, OverlongFormsSurrogatesAndLooseBytesAreNot) {
  for (const char* text : {"\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                           "\xF5\x80\x80\x80", "\xC3", "\xE2\x82", "\xC3z", "\xE2\x82z", "\xF0\x90\x80z", "\xFF"}) {
    EXPECT_FALSE(IsValidUtf8(text)) << testing::PrintToString(std::string(text));
  }
}

TEST(Utf8Test, TheMessageNamesTextByteAndPlace) {
  EXPECT_EQ(CheckUtf8("ab\xFFz", "prompt:").message(), "prompt: is not valid UTF-8: byte 2 of 4 is 0xff");
}

TEST(Utf8Test, EveryCodePointSurvivesARoundTrip) {
  for (char32_t c : {0x0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}) {
    std::string text;
    AppendUtf8(c, &text);
    EXPECT_TRUE(IsValidUtf8(text));
    EXPECT_EQ(Utf8Length(text[0]), text.size());
    size_t pos = 0;
    EXPECT_EQ(DecodeUtf8(text, &pos), c);
    EXPECT_EQ(pos, text.size());
  }
}

std::string Assemble(Utf8Assembler::OnInvalid on_invalid, const std::vector<std::string>& parts) {
  Utf8Assembler assembler(on_invalid);
  std::string out;
  for (const std::string& part : parts) {
    assembler.Append(part, &out);
    out += "|";
  }
  assembler.Finish(&out);
  return out;
}

TEST(Utf8AssemblerTest, ACharacterWaitsForItsLastByte) {
  using enum Utf8Assembler::OnInvalid;
  EXPECT_EQ(Assemble(kReplaceSubpart, {"a\xE4", "\xBD", "\xA0z"}), "a||\xE4\xBD\xA0z|");
}

TEST(Utf8AssemblerTest, WhatCanNoLongerBecomeACharacterIsReplaced) {
  using enum Utf8Assembler::OnInvalid;
  EXPECT_EQ(Assemble(kReplaceSubpart, {"\xE4\xBD", "a"}),
            "|\xEF\xBF\xBD"
            "a|");
  EXPECT_EQ(Assemble(kReplaceByte, {"\xE4\xBD", "a"}),
            "|\xEF\xBF\xBD\xEF\xBF\xBD"
            "a|");
  EXPECT_EQ(Assemble(kReplaceSubpart, {"\xED", "\xA0"}), "|\xEF\xBF\xBD\xEF\xBF\xBD|") << "a surrogate is no character";
}

TEST(Utf8AssemblerTest, TheEndReplacesAnUnfinishedCharacter) {
  using enum Utf8Assembler::OnInvalid;
  EXPECT_EQ(Assemble(kReplaceSubpart, {"\xF0\x9F\x98"}), "|\xEF\xBF\xBD");
  EXPECT_EQ(Assemble(kReplaceByte, {"\xF0\x9F"}), "|\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace quire
