// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/answer_deadline.h"

#include <optional>
#include <string>
#include <variant>

#include "gtest/gtest.h"

namespace quire {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::steady_clock::time_point;

constexpr milliseconds kNoLimit(0);

WebRequest With(const std::string& timeout, const std::string& read_timeout = "") {
  WebRequest request;
  if (!timeout.empty()) request.timeout = timeout;
  request.read_timeout = read_timeout;
  return request;
}

// The time that the answer has, or nothing if there is no limit.
std::optional<milliseconds> Timeout(const WebRequest& request, bool streams, milliseconds limit = kNoLimit) {
  const Time now(std::chrono::hours(1));
  const auto deadline = AnswerDeadline(request, streams, limit, now);
  if (const auto* const error = std::get_if<ApiError>(&deadline)) ADD_FAILURE() << error->message;
  const Time time = std::get<Time>(deadline);
  return time == Time::max() ? std::nullopt : std::optional(std::chrono::duration_cast<milliseconds>(time - now));
}

TEST(AnswerDeadlineTest, TheShorterOfFlagAndHeaderCounts) {
  EXPECT_EQ(Timeout(With(""), true), std::nullopt);
  EXPECT_EQ(Timeout(With(""), true, milliseconds(700)), milliseconds(700));
  EXPECT_EQ(Timeout(With("2.5"), true), milliseconds(2500));
  EXPECT_EQ(Timeout(With("2.5"), true, milliseconds(700)), milliseconds(700));
  EXPECT_EQ(Timeout(With("0.5"), false, milliseconds(700)), milliseconds(500));
  EXPECT_EQ(Timeout(With("86400"), false), std::chrono::hours(24));
  EXPECT_EQ(Timeout(With("0.001"), false), milliseconds(1));
}

TEST(AnswerDeadlineTest, TheReadTimeoutOfAClientIsThatOfAnAnswerInOnePiece) {
  // The client learns what the server says a little before its own time is up.
  EXPECT_EQ(Timeout(With("", "600"), false), milliseconds(599'000));
  EXPECT_EQ(Timeout(With("", "20"), false), milliseconds(19'600));
  EXPECT_EQ(Timeout(With("", "5.0"), false), milliseconds(4900));
  EXPECT_EQ(Timeout(With("", "0.1"), false), milliseconds(50));
  EXPECT_EQ(Timeout(With("", "0.0001"), false), milliseconds(1));
  EXPECT_EQ(Timeout(With("", "1e300"), false), std::chrono::hours(24) - std::chrono::seconds(1));
  EXPECT_EQ(Timeout(With("", "5.0"), true), std::nullopt) << "a stream may take longer in all";
  EXPECT_EQ(Timeout(With("9", "5"), false), std::chrono::seconds(9)) << "it is about this";
  for (const char* const text : {"None", "0", "-1", "nan"}) {
    EXPECT_EQ(Timeout(With("", text), false), std::nullopt) << text;
  }
}

TEST(AnswerDeadlineTest, AHeaderThatIsNoTimeIsRefused) {
  // Two headers of this name come as one list.
  for (const char* const text : {"soon", "0",  "-1",     "5s",  "nan",    "inf", "1e300", "86401", "2, 5", "2, 2", "",
                                 "0x10", "+5", "1e-300", "1e1", "0.0009", ".5",  "1.2.3", " 5",    "1_0",  "1,5"}) {
    WebRequest request;
    request.timeout = text;
    const auto deadline = AnswerDeadline(request, true, kNoLimit, Time());
    ASSERT_TRUE(std::holds_alternative<ApiError>(deadline)) << text;
    EXPECT_EQ(std::get<ApiError>(deadline).message,
              "X-Request-Timeout is \"" + std::string(text) +
                  "\", it must be one number of seconds, such as 2.5, from 0.001 to 86400");
  }
}

}  // namespace
}  // namespace quire
