// SPDX-License-Identifier: Apache-2.0

#include "client/terminal/input.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "client/library/probe.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(InputTest, TokenIdsMayBeTheJsonOfTokenize) {
  const auto ids = ReadTokenIds({R"({"token_ids":[1,66],"pieces":["<s>","Once"]})"});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(1, 66));
  EXPECT_THAT(std::string(ReadTokenIds({R"({"text":"Once"})"}).status().message()),
              HasSubstr("not the JSON of `quirectl tokenize -o json`"));
  EXPECT_EQ(ReadTokenIds({"{}"}).status().message(), "ids: there is none");
}

TEST(InputTest, ATerminalIsAskedForTheText) {
  const Socket keyboard(posix_openpt(O_RDWR | O_NOCTTY));
  ASSERT_EQ(grantpt(keyboard.fd()), 0);
  ASSERT_EQ(unlockpt(keyboard.fd()), 0);
  const Socket terminal(open(ptsname(keyboard.fd()), O_RDWR | O_NOCTTY));
  ASSERT_GE(terminal.fd(), 0);
  const std::string typed = "Once\n\x04";  // Ctrl-D
  ASSERT_EQ(write(keyboard.fd(), typed.data(), typed.size()), static_cast<ssize_t>(typed.size()));
  const Socket before(dup(STDIN_FILENO));
  dup2(terminal.fd(), STDIN_FILENO);
  testing::internal::CaptureStderr();
  const absl::StatusOr<std::string> text = ReadText("-", "prompt");
  const std::string said = testing::internal::GetCapturedStderr();
  std::clearerr(stdin);
  dup2(before.fd(), STDIN_FILENO);
  EXPECT_EQ(text.value_or("failed"), "Once\n");
  EXPECT_EQ(said, "reading the prompt from standard input; end it with Ctrl-D\n");
}

}  // namespace
}  // namespace quire
