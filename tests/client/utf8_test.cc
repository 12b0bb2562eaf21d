#include "client/utf8.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quire/v1/inference.pb.h"

namespace quire {
namespace {

using testing::HasSubstr;

TEST(Utf8Test, EveryLengthAndTheEdgesOfTheTableAreValid) {
  for (const char* text : {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "a\xE2\x82\xAC z"}) {
    EXPECT_TRUE(CheckUtf8(text, "text").ok()) << CheckUtf8(text, "text");
  }
}

TEST(Utf8Test, OverlongFormsSurrogatesAndLooseBytesAreNot) {
  for (const char* text : {"\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                           "\xF5\x80\x80\x80", "\xC3", "\xE2\x82", "\xC3z", "\xE2\x82z", "\xF0\x90\x80z", "\xFF"}) {
    EXPECT_FALSE(CheckUtf8(text, "text").ok()) << testing::PrintToString(std::string(text));
  }
}

TEST(Utf8Test, TheMessageNamesFieldByteAndPlace) {
  EXPECT_EQ(CheckUtf8("ab\xFFz", "prompt").message(), "prompt: is not valid UTF-8: byte 2 of 4 is 0xff");
}

TEST(Utf8Test, NestedAndRepeatedStringsAreNamedByTheirPath) {
  v1::GenerateRequest request;
  request.set_text("fine");
  request.mutable_stopping()->add_stop("fine");
  EXPECT_TRUE(CheckUtf8(request).ok());
  request.mutable_stopping()->add_stop("\xFF");
  EXPECT_THAT(std::string(CheckUtf8(request).message()), HasSubstr("stopping.stop[1]: is not valid UTF-8"));
  request.set_text("\xFF");
  EXPECT_THAT(std::string(CheckUtf8(request).message()), HasSubstr("text: is not valid UTF-8"));
}

}  // namespace
}  // namespace quire
