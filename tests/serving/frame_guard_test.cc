// SPDX-License-Identifier: Apache-2.0

#include "serving/frame_guard.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/serving/frames.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNow = 1'000'000;
constexpr char kPath[] = "/quire.v1.InferenceService/GetModel";
constexpr int64_t kNumFields = 6;  // Of CallFields.
constexpr int64_t kBytesPerCall = FrameGuard::kBytesPerStream + kNumFields * FrameGuard::kBytesPerField;

class FrameGuardTest : public ::testing::Test {
 protected:
  FrameGuardTest() {
    guard_.Send(frames::Frame(frames::kSettings, 0, 0, std::string(6, '\0')));
    EXPECT_TRUE(Receive(frames::Preface()).ok());
  }

  absl::Status Receive(absl::string_view bytes) { return guard_.Receive(bytes, now_us_); }

  void Acknowledge() { EXPECT_TRUE(Receive(frames::Frame(frames::kSettings, frames::kAck, 0, "")).ok()); }

  // Begins the next call. The client may still send messages.
  absl::Status Call(const std::string& more_fields = "") {
    stream_ += 2;
    return Receive(
        frames::Frame(frames::kHeaders, frames::kEndHeaders, stream_, frames::CallFields(kPath) + more_fields));
  }

  // The server answers the last call.
  void Answer() {
    guard_.Send(frames::Frame(frames::kHeaders, frames::kEndHeaders, stream_, "\x88"));
    guard_.Send(frames::Frame(frames::kHeaders, frames::kEndHeaders | frames::kEndStream, stream_, "\x88"));
  }

  absl::Status Reset() { return Receive(frames::Frame(frames::kReset, 0, stream_, frames::BigEndian(8, 4))); }

  // Does it repeatedly, at most 100,000 times, and returns how often there was no error.
  template <typename Function>
  int64_t CountUntilRefused(Function function) {
    for (int64_t i = 0; i < 100'000; ++i) {
      if (!function().ok()) return i;
    }
    return 100'000;
  }

  FrameGuard guard_;
  int64_t now_us_ = kNow;
  uint32_t stream_ = static_cast<uint32_t>(-1);
};

TEST_F(FrameGuardTest, ABlockOfReferencesIsRefusedByItsFields) {
  const std::string new_field = frames::NewField("a", std::string(3900, 'a'));
  EXPECT_TRUE(Call(new_field + frames::References(FrameGuard::kMaxHeaderFields - kNumFields - 1)).ok());
  EXPECT_THAT(std::string(Call(frames::References(4000)).message()), HasSubstr("more than 256 fields"));
}

TEST_F(FrameGuardTest, FieldsAreCountedAcrossContinuations) {
  ASSERT_TRUE(Receive(frames::Frame(frames::kHeaders, 0, 1, frames::CallFields(kPath))).ok());
  const std::string more = frames::Frame(frames::kContinuation, 0, 1, frames::References(50));
  EXPECT_EQ(CountUntilRefused([&] { return Receive(more); }), 5);
}

TEST_F(FrameGuardTest, AStringThatNeverEndsIsRefusedByTheBytesOfItsBlock) {
  ASSERT_TRUE(Receive(frames::Frame(frames::kHeaders, 0, 1, std::string("\0\x01k\x7F\xFF\xFF\xFF\x7F", 8))).ok());
  const std::string more = frames::Frame(frames::kContinuation, 0, 1, std::string(1024, 'a'));
  EXPECT_EQ(CountUntilRefused([&] { return Receive(more); }), 15);
}

TEST_F(FrameGuardTest, ANumberThatNeverEndsIsRefused) {
  EXPECT_THAT(std::string(Call("\xFF" + std::string(20, '\x80')).message()), HasSubstr("a number that is too large"));
}

TEST_F(FrameGuardTest, WhereTheBytesAreSplitDoesNotMatter) {
  const std::string block = frames::CallFields(kPath) + frames::NewField("a", std::string(200, 'a'));
  const std::string call = frames::Frame(frames::kHeaders, frames::kEndHeaders, 1, block + frames::References(100)) +
                           frames::Frame(frames::kData, 0, 1, std::string("\0\0\0\1\0abc", 8));
  for (size_t i = 0; i < call.size(); ++i) ASSERT_TRUE(Receive(absl::string_view(call).substr(i, 1)).ok()) << i;
  EXPECT_EQ(guard_.held_bytes(), kBytesPerCall + 101 * FrameGuard::kBytesPerField + 3);
}

TEST_F(FrameGuardTest, LongHeadersHoldMemoryUntilTheCallEnds) {
  const std::string fields = frames::Field("a", std::string(10'000, 'a'));
  const size_t num_bytes = frames::CallFields(kPath).size() + fields.size();
  ASSERT_TRUE(Call(fields).ok());
  EXPECT_EQ(guard_.held_bytes(),
            kBytesPerCall + FrameGuard::kBytesPerField + 2 * (static_cast<int64_t>(num_bytes) - (4 << 10)));
  Answer();
  EXPECT_EQ(guard_.held_bytes(), 0);
}

TEST_F(FrameGuardTest, AClientMustAcknowledgeTheSettingsBeforeItBeginsManyCalls) {
  EXPECT_EQ(CountUntilRefused([&] { return Call(); }), FrameGuard::kMaxStreamsBeforeAck);
}

TEST_F(FrameGuardTest, AfterTheAcknowledgementTheNumberOfCallsIsLeftToTheServer) {
  Acknowledge();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Call().ok());
  EXPECT_EQ(guard_.held_bytes(), 1000 * kBytesPerCall);
}

TEST_F(FrameGuardTest, AnAcknowledgementOfSettingsThatWereNotSentIsRefused) {
  Acknowledge();
  EXPECT_THAT(std::string(Receive(frames::Frame(frames::kSettings, frames::kAck, 0, "")).message()),
              HasSubstr("that were not sent"));
}

TEST_F(FrameGuardTest, CallsHoldMemoryUntilTheyAreAnsweredOrReset) {
  ASSERT_TRUE(Call().ok());
  EXPECT_EQ(guard_.held_bytes(), kBytesPerCall);
  Answer();
  EXPECT_EQ(guard_.held_bytes(), 0);
  ASSERT_TRUE(Call().ok() && Reset().ok());
  EXPECT_EQ(guard_.held_bytes(), 0);
}

TEST_F(FrameGuardTest, AMessageHoldsMemoryUntilItIsComplete) {
  ASSERT_TRUE(Call().ok());
  const auto send = [this](const std::string& bytes) {
    EXPECT_TRUE(Receive(frames::Frame(frames::kData, 0, stream_, bytes)).ok());
    return guard_.held_bytes() - kBytesPerCall;
  };
  EXPECT_EQ(send(std::string("\0\0\0\0", 4)), 0);
  EXPECT_EQ(send("\5ab"), 2);
  EXPECT_EQ(send("c"), 3);
  EXPECT_EQ(send("de"), 0);
  // An empty message, and the beginning of the next one.
  EXPECT_EQ(send(std::string("\0\0\0\0\0\0\0\0\0\2a", 11)), 1);
}

TEST_F(FrameGuardTest, ResetsOfCallsThatRunAreLimited) {
  Acknowledge();
  // A call earns one frame and its reset takes three. The settings have taken one.
  EXPECT_EQ(CountUntilRefused([&] { return Call().ok() ? Reset() : absl::InternalError("call"); }),
            (FrameGuard::kMaxSpareFrames - 1) / 2);
}

TEST_F(FrameGuardTest, AClientMayEndAllOfItsCallsAtOnce) {
  Acknowledge();
  constexpr uint32_t kNumCalls = 1024;  // What a manager allows.
  for (uint32_t i = 0; i < kNumCalls; ++i) ASSERT_TRUE(Call().ok());
  for (stream_ = 1; stream_ < 2 * kNumCalls; stream_ += 2) ASSERT_TRUE(Reset().ok()) << stream_;
}

TEST_F(FrameGuardTest, FramesThatAreThrownAwayCostTheirBytes) {
  ASSERT_TRUE(Call().ok());
  const std::string unknown = frames::Frame(0x20, 0, 0, std::string(16 << 10, 'x'));
  EXPECT_EQ(CountUntilRefused([&] { return Receive(unknown); }), FrameGuard::kMaxSpareFrames / (1 + (16 << 10) / 64));
}

TEST_F(FrameGuardTest, DataOfACallThatHasEndedCostsALittle) {
  ASSERT_TRUE(Call().ok());
  Answer();
  const std::string late = frames::Frame(frames::kData, 0, stream_, std::string(16 << 10, 'x'));
  EXPECT_EQ(CountUntilRefused([&] { return Receive(late); }), FrameGuard::kMaxSpareFrames / (1 + (16 << 10) / 4096));
}

TEST_F(FrameGuardTest, CallsThatAreAnsweredAllowAsManyResets) {
  Acknowledge();
  const auto one_of_two = [&] {
    EXPECT_TRUE(Call().ok());
    Answer();
    return Call().ok() ? Reset() : absl::InternalError("call");
  };
  EXPECT_EQ(CountUntilRefused(one_of_two), 100'000);
}

TEST_F(FrameGuardTest, HeadersOnAStreamThatNoClientMayBeginAreRefused) {
  for (const uint32_t stream : {0u, 2u, 0x7FFF'FFFEu}) {
    FrameGuard guard;
    ASSERT_TRUE(guard.Receive(frames::Preface(), kNow).ok());
    const std::string call = frames::Frame(frames::kHeaders, frames::kEndHeaders, stream, frames::CallFields(kPath));
    EXPECT_THAT(std::string(guard.Receive(call, kNow).message()), HasSubstr("have odd numbers")) << stream;
    EXPECT_EQ(guard.num_calls(), 0);
  }
}

TEST_F(FrameGuardTest, HeadersThatBeginNoCallAreLimited) {
  ASSERT_TRUE(Call().ok());
  stream_ += 2;
  ASSERT_TRUE(Call().ok());
  Answer();
  // On an open stream, on one that was left out, and on a closed one.
  for (const uint32_t stream : {1u, 3u, 5u}) {
    FrameGuard guard = guard_;
    const std::string empty = frames::Frame(frames::kHeaders, frames::kEndHeaders | frames::kEndStream, stream, "");
    EXPECT_EQ(CountUntilRefused([&] { return guard.Receive(empty, kNow); }), FrameGuard::kMaxSpareFrames) << stream;
    EXPECT_EQ(guard.num_calls(), 2);
  }
}

TEST_F(FrameGuardTest, CallsMayHaveTrailers) {
  Acknowledge();
  for (int64_t i = 0; i < 2 * FrameGuard::kMaxSpareFrames; ++i) {
    ASSERT_TRUE(Call().ok());
    ASSERT_TRUE(Receive(frames::Frame(frames::kHeaders, frames::kEndHeaders | frames::kEndStream, stream_,
                                      frames::Field("checksum", "1")))
                    .ok());
  }
}

TEST_F(FrameGuardTest, FramesThatBringNothingAreLimited) {
  const std::string nothing[] = {frames::Frame(frames::kSettings, 0, 0, ""),
                                 frames::Frame(frames::kPing, 0, 0, std::string(8, '\0')),
                                 frames::Frame(frames::kPriority, 0, 1, std::string(5, '\0')),
                                 frames::Frame(frames::kWindowUpdate, 0, 0, frames::BigEndian(1, 4)),
                                 frames::Frame(frames::kData, 0, 1, ""),
                                 frames::Frame(frames::kReset, 0, 1, frames::BigEndian(8, 4)),
                                 frames::Frame(77, 0, 0, std::string(60, 'a'))};
  for (const std::string& frame : nothing) {
    FrameGuard guard;
    ASSERT_TRUE(guard.Receive(frames::Preface(), kNow).ok());
    const int64_t count = CountUntilRefused([&] { return guard.Receive(frame, kNow); });
    EXPECT_EQ(count, FrameGuard::kMaxSpareFrames - 1) << int{static_cast<uint8_t>(frame[3])};
  }
}

TEST_F(FrameGuardTest, TimeAndAnswersAllowMoreOfThem) {
  const std::string ping = frames::Frame(frames::kPing, 0, 0, std::string(8, '\0'));
  CountUntilRefused([&] { return Receive(ping); });
  now_us_ += 100'000;
  EXPECT_EQ(CountUntilRefused([&] { return Receive(ping); }), FrameGuard::kSpareFramesPerSecond / 10 - 1);
  guard_.Send(frames::Frame(frames::kData, 0, 1, "token"));
  EXPECT_EQ(CountUntilRefused([&] { return Receive(ping); }), FrameGuard::kSpareFramesPerSentFrame - 1);
}

TEST_F(FrameGuardTest, WhatIsNotHttp2IsLeftToTheServer) {
  FrameGuard guard;
  EXPECT_TRUE(guard.Receive("\x16\x03\x01" + std::string(100'000, '\xBE'), kNow).ok());
  EXPECT_EQ(guard.held_bytes(), 0);
}

}  // namespace
}  // namespace quire
