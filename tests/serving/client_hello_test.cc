// SPDX-License-Identifier: Apache-2.0

#include "serving/client_hello.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "tests/serving/frames.h"

namespace quire {
namespace {

const std::string kRandom = "abcdefghijklmnopqrstuvwxyz012345";

std::string Record(const std::string& payload) {
  return "\x16\x03\x01" + frames::BigEndian(payload.size(), 2) + payload;
}

// The message ClientHello up to the random bytes, and some bytes behind them.
std::string Message() {
  return "\x01" + frames::BigEndian(200, 3) + "\x03\x03" + kRandom + std::string(100, 'x');
}

TEST(ClientHelloTest, FindsTheRandomBytes) {
  ClientHello hello;
  EXPECT_EQ(hello.Add(Record(Message())), kRandom);
  EXPECT_EQ(hello.Add(Record(Message())), std::nullopt);
}

TEST(ClientHelloTest, FindsThemInPiecesAndInManyRecords) {
  std::string bytes;
  for (const char byte : Message()) bytes += Record(std::string(1, byte));
  ClientHello hello;
  std::optional<std::string> random;
  for (const char byte : bytes) {
    std::optional<std::string> found = hello.Add(std::string(1, byte));
    if (found.has_value()) {
      EXPECT_FALSE(random.has_value());
      random = found;
    }
  }
  EXPECT_EQ(random, kRandom);
}

TEST(ClientHelloTest, FindsNothingInOtherBytes) {
  ClientHello hello;
  EXPECT_EQ(hello.Add("GET / HTTP/1.1\r\n\r\n" + Record(Message())), std::nullopt);
}

}  // namespace
}  // namespace quire
