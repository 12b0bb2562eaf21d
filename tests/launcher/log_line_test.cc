// SPDX-License-Identifier: Apache-2.0

#include "launcher/log_line.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

void ExpectLine(absl::string_view text, char level, const std::string& message) {
  const LogLine line = ReadLogLine(text);
  EXPECT_EQ(line.level, level) << text;
  EXPECT_EQ(line.message, message) << text;
}

TEST(LogLineTest, LinesOfTextHaveALevelAndAMessage) {
  ExpectLine("I 2026-01-31T12:00:00.123Z worker a joined", 'I', "worker a joined");
  ExpectLine("W 2026-01-31T12:00:00.123Z slow \n", 'W', "slow");
  ExpectLine("listening on 127.0.0.1:8000", ' ', "listening on 127.0.0.1:8000");
  ExpectLine("  model   tales", ' ', "  model   tales");
  ExpectLine("", ' ', "");
}

TEST(LogLineTest, LinesOfJsonHaveTheSame) {
  ExpectLine(R"({"time":"x","severity":"WARNING","message":"slow","pid":7})", 'W', "slow");
  ExpectLine(R"({"severity":"CRITICAL","message":"quire-worker: no"})", 'E', "quire-worker: no");
  ExpectLine(R"({"message":"no severity"})", ' ', R"({"message":"no severity"})");
  ExpectLine(R"({"severity":1})", ' ', R"({"severity":1})");
  ExpectLine("{broken", ' ', "{broken");
}

TEST(LogLineTest, TheWordAfterATitleIsFound) {
  EXPECT_EQ(WordAfter("listening on ", "listening on unix:/a b"), "unix:/a");
  EXPECT_EQ(WordAfter("listening on ", "it is listening on x"), std::nullopt);
}

}  // namespace
}  // namespace quire
