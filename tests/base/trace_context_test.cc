// SPDX-License-Identifier: Apache-2.0

#include "base/trace_context.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kParent[] = "00f067aa0ba902b7";

std::string Text(const std::string& version, const std::string& trace, const std::string& parent,
                 const std::string& flags) {
  return version + "-" + trace + "-" + parent + "-" + flags;
}

TEST(TraceparentTest, HasTraceParentAndWhetherItIsSampled) {
  const auto parent = ParseTraceparent(Text("00", kTrace, kParent, "01"));
  ASSERT_TRUE(parent.has_value());
  EXPECT_EQ(parent->trace_id, kTrace);
  EXPECT_EQ(parent->parent_id, kParent);
  EXPECT_TRUE(parent->is_sampled);
  EXPECT_FALSE(ParseTraceparent(Text("00", kTrace, kParent, "00"))->is_sampled);
  EXPECT_FALSE(ParseTraceparent(Text("00", kTrace, kParent, "fe"))->is_sampled) << "other bits mean nothing here";
  EXPECT_TRUE(ParseTraceparent(Text("00", kTrace, kParent, "ff"))->is_sampled);
}

TEST(TraceparentTest, OfALaterVersionTheKnownPartCounts) {
  for (const char* later : {"01", "cc", "fe"}) {
    const std::string text = Text(later, kTrace, kParent, "01");
    EXPECT_TRUE(ParseTraceparent(text)->is_sampled) << text;
    EXPECT_EQ(ParseTraceparent(text + "-what.may.come")->trace_id, kTrace) << text;
    EXPECT_TRUE(ParseTraceparent(text + "-").has_value()) << text;
    EXPECT_FALSE(ParseTraceparent(text + "0").has_value()) << text;
    EXPECT_FALSE(ParseTraceparent(text + ".").has_value()) << text;
  }
}

TEST(TraceparentTest, AMalformedOneIsNone) {
  const std::string good = Text("00", kTrace, kParent, "01");
  const std::string zeros(32, '0');
  const std::string upper = "4BF92F3577B34DA6A3CE929D0E0E4736";
  for (const std::string& bad : {std::string(),
                                 std::string("00"),
                                 good.substr(0, good.size() - 1),
                                 good + "0",
                                 good + "-",
                                 good + "-00",
                                 good + " ",
                                 " " + good,
                                 Text("ff", kTrace, kParent, "01"),
                                 Text("0", kTrace, kParent, "001"),
                                 Text("0g", kTrace, kParent, "01"),
                                 Text("FE", kTrace, kParent, "01"),
                                 Text("00", zeros, kParent, "01"),
                                 Text("00", kTrace, zeros.substr(16), "01"),
                                 Text("00", upper, kParent, "01"),
                                 Text("00", kTrace, "00F067AA0BA902B7", "01"),
                                 Text("00", kTrace, kParent, "0x"),
                                 Text("00", kTrace, kParent, "0A"),
                                 Text("00", std::string(31, 'a') + ".", kParent, "01"),
                                 Text("00", std::string(31, 'a'), kParent, "01a"),
                                 Text("00", std::string(33, 'a'), std::string(15, 'b'), "01"),
                                 "00_" + good.substr(3),
                                 good.substr(0, 35) + "_" + good.substr(36),
                                 good.substr(0, 52) + "_" + good.substr(53),
                                 std::string(55, '\0'),
                                 std::string(55, '-')}) {
    EXPECT_FALSE(ParseTraceparent(bad).has_value()) << "'" << bad << "'";
  }
}

TEST(TraceSpanTest, ContinuesWithTheCallersTraceUnderASpanOfItsOwn) {
  const TraceSpan span = StartSpan(ParseTraceparent(Text("cc", kTrace, kParent, "03")), {0x10, 2, 3});
  EXPECT_EQ(span.parent_id, kParent);
  EXPECT_EQ(Traceparent(span), Text("00", kTrace, "0000000000000011", "01"))
      << "our version, and the bits that we know";
}

TEST(TraceSpanTest, StartsATraceThatIsNotSampledWithoutACaller) {
  const TraceSpan span = StartSpan({}, {0, 0, 0});
  EXPECT_EQ(span.parent_id, "");
  EXPECT_EQ(Traceparent(span), "00-00000000000000000000000000000001-0000000000000001-00") << "no id is all 0";
  EXPECT_TRUE(ParseTraceparent(Traceparent(StartSpan({}, {~0ull, 1ull << 63, 7}))).has_value());
}

}  // namespace
}  // namespace quire
