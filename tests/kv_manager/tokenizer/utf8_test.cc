#include "kv_manager/tokenizer/utf8.h"

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
