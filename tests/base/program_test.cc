// SPDX-License-Identifier: Apache-2.0

// Tests base/flags.h, base/listen_address.h and base/process_usage.h.

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/file_limit.h"
#include "base/flags.h"
#include "base/listen_address.h"
#include "base/listening_sockets.h"
#include "base/process_usage.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(int32_t, block_count, 7, "How many blocks.");
ABSL_FLAG(bool, be_loud, false, "Whether to shout.");
ABSL_FLAG(double, share, 0.5, "A share.");
ABSL_FLAG(absl::Duration, patience, absl::Seconds(3), "How long to wait.");
ABSL_FLAG(int32_t, max_shout_bytes, 100, "How long a shout is.");
ABSL_FLAG(std::string, hidden, "", "Not among the names.");

namespace quire {
namespace {

using ::testing::HasSubstr;

const ProgramFlags& Flags() {
  static const auto* const flags =
      new ProgramFlags{"quire-shout",
                       "shouts.",
                       "[flags]",
                       {{"Blocks:", {"block_count"}}, {"Noise:", {"be_loud", "share", "patience", "max_shout_bytes"}}}};
  return *flags;
}

// Returns the text to print, or "" when the flags were set.
absl::StatusOr<std::string> Read(const std::vector<const char*>& arguments) {
  absl::StatusOr<std::optional<std::string>> text = ReadFlags(Flags(), arguments);
  if (!text.ok()) return text.status();
  return text->value_or("");
}

std::string Error(const std::vector<const char*>& arguments) {
  const absl::FlagSaver saver;
  const absl::Status status = Read(arguments).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(FlagsTest, ValuesFollowTheFlagOrAnEqualsSign) {
  const absl::FlagSaver saver;
  ASSERT_EQ(*Read({"--block-count=8", "--patience", "2m", "--be_loud"}), "");
  EXPECT_EQ(absl::GetFlag(FLAGS_block_count), 8);
  EXPECT_EQ(absl::GetFlag(FLAGS_patience), absl::Minutes(2));
  EXPECT_TRUE(absl::GetFlag(FLAGS_be_loud));
  ASSERT_EQ(*Read({"--be-loud=false"}), "");
  EXPECT_FALSE(absl::GetFlag(FLAGS_be_loud));
}

TEST(FlagsTest, ASizeMayHaveAUnit) {
  const absl::FlagSaver saver;
  for (const auto& [text, bytes] : {std::pair("--max-shout-bytes=512", 512),
                                    {"--max-shout-bytes=2KiB", 2048},
                                    {"--max-shout-bytes=1.5GiB", 3 << 29},
                                    {"--max-shout-bytes=0", 0}}) {
    ASSERT_EQ(*Read({text}), "");
    EXPECT_EQ(absl::GetFlag(FLAGS_max_shout_bytes), bytes) << text;
  }
  for (const char* wrong : {"2KB", "x", "-1KiB", "4GiB", "1.5", ""}) {
    EXPECT_EQ(Error({absl::StrCat("--max-shout-bytes=", wrong).c_str()}),
              absl::StrCat("--max-shout-bytes is '", wrong,
                           "', it must be a number of bytes such as 1048576, 512KiB or 1.5GiB"));
  }
  EXPECT_EQ(Error({"--block-count=2KiB"}), "--block-count is '2KiB', it must be a whole number");
}

TEST(FlagsTest, AnErrorIsOneLineWithFlagAndValue) {
  EXPECT_EQ(Error({"--block-count=x"}), "--block-count is 'x', it must be a whole number");
  EXPECT_EQ(Error({"--share=x"}), "--share is 'x', it must be a number");
  EXPECT_EQ(Error({"--be-loud=x"}), "--be-loud is 'x', it must be true or false");
  EXPECT_EQ(Error({"--patience=3"}), "--patience is '3', it must be a duration such as 500ms, 30s, 10m or 1h30m");
  EXPECT_EQ(Error({"--share"}), "--share has no value");
  EXPECT_EQ(Error({"share"}), "'share' is not a flag; see --help");
  EXPECT_EQ(Error({"--hidden=x"}), "there is no flag --hidden; see --help");
}

TEST(FlagsTest, TheHelpShowsNameDefaultAndMeaningInGroups) {
  EXPECT_EQ(*Read({"--help"}),
            "quire-shout shouts.\n"
            "\n"
            "Usage: quire-shout [flags]\n"
            "\n"
            "Flags are --name=value or --name value and shown here as --name=default.\n"
            "\n"
            "Blocks:\n"
            "  --block-count=7\n"
            "      How many blocks.\n"
            "\n"
            "Noise:\n"
            "  --be-loud=false\n"
            "      Whether to shout.\n"
            "  --share=0.5\n"
            "      A share.\n"
            "  --patience=3s\n"
            "      How long to wait.\n"
            "  --max-shout-bytes=100\n"
            "      How long a shout is.\n"
            "\n"
            "  --help, -h, --version\n"
            "      Print this, or the version, and leave.\n");
}

TEST(FlagsTest, HelpAndVersionComeBeforeAnyError) {
  EXPECT_THAT(*Read({"--nonsense", "--help"}), HasSubstr("Usage: quire-shout"));
  EXPECT_EQ(*Read({"-h"}), *Read({"--help"}));
  EXPECT_THAT(*Read({"--share=x", "--version"}), testing::StartsWith("quire-shout 0."));
}

TEST(ListenAddressTest, HostPortAndUnixPathAreAddresses) {
  for (const char* good : {"127.0.0.1:0", "node1:50051", "[::1]:65535", "unix:/a", "unix:a"}) {
    EXPECT_TRUE(IsListenAddress(good)) << good;
  }
  for (const char* bad :
       {"", "50051", ":50051", "a:", "a:b", "a:65536", "a:-1", "::1:5", "[::1]", "[]:1", "http://a:1", "unix:", "a"}) {
    EXPECT_FALSE(IsListenAddress(bad)) << bad;
  }
}

TEST(ListenAddressTest, APortOutOfRangeIsToldFromAnotherForm) {
  for (const char* bad_port : {"a:", "a:b", "a:65536", "127.0.0.1:70000", "a:-1", "[::1]:70000"}) {
    EXPECT_TRUE(HasBadPort(bad_port)) << bad_port;
  }
  for (const char* other : {"", "50051", "a:1", "::1:70000", "http://a:70000", ":70000", "unix:/a", "unix:"}) {
    EXPECT_FALSE(HasBadPort(other)) << other;
  }
}

TEST(ListenAddressTest, ThePortThatWasTakenReplacesTheOneAskedFor) {
  EXPECT_EQ(WithPort("127.0.0.1:0", 41234), "127.0.0.1:41234");
  EXPECT_EQ(WithPort("[::1]:0", 41234), "[::1]:41234");
  EXPECT_EQ(WithPort("unix:/a", 1), "unix:/a");
}

TEST(ListenAddressTest, EveryReasonIsToldApart) {
  const auto reason = [](const std::string& address) {
    return std::string(ListeningSockets::Open(address).status().message());
  };
  EXPECT_EQ(ListeningSockets::Open("127.0.0.1:0").status(), absl::OkStatus());
  EXPECT_EQ(ListeningSockets::Open("50051").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(reason("50051"), "it is not host:port or unix:path");
  EXPECT_THAT(reason("host.invalid:1"), HasSubstr("the host host.invalid is unknown"));
  EXPECT_EQ(reason("192.0.2.1:1"), "192.0.2.1 is not an address of this machine");
  EXPECT_EQ(reason("unix:/nonexistent/a"), "No such file or directory");
  EXPECT_EQ(reason("unix:/dev/null"), "/dev/null exists and is not a socket that may be replaced");
  EXPECT_EQ(reason("unix:" + std::string(108, 'a')), "the path has 108 characters, it must have 1 to 107");
}

TEST(ListeningSocketsTest, OnlyAUnixSocketThatSomebodyListensOnIsInUse) {
  const std::string path = absl::StrCat(testing::TempDir(), "/quire_program_test.", getpid());
  const std::string address = absl::StrCat("unix:", path);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, path.c_str(), sizeof(name.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_EQ(ListeningSockets::Open(address).status().message(), "it is in use");
  close(fd);
  EXPECT_EQ(ListeningSockets::Open(address).status(), absl::OkStatus()) << "only the file is left";
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "closing the socket leaves its file";
}

TEST(ListeningSocketsTest, ATakenPortIsInUse) {
  const auto first = ListeningSockets::Open("localhost:0");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GT(first->port(), 0);
  EXPECT_EQ(first->address(), absl::StrCat("localhost:", first->port()));
  EXPECT_EQ(ListeningSockets::Open(first->address()).status().message(), "it is in use");
  EXPECT_EQ(ListeningSockets::Open(absl::StrCat("0.0.0.0:", first->port())).status().message(), "it is in use");
}

TEST(FileLimitTest, IsRaisedToTheHardLimit) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  RaiseFileLimit();
  rlimit raised{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &raised), 0);
  EXPECT_EQ(raised.rlim_cur, std::min<rlim_t>(limit.rlim_max, 1'000'000));
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(ProcessUsageTest, ThisProcessUsesMemoryAndHasStarted) {
  const ProcessUsage usage = ReadProcessUsage();
  EXPECT_GT(usage.resident_bytes, 1 << 20);
  EXPECT_GE(usage.cpu_seconds, 0);
  EXPECT_GT(usage.start_time_seconds, 0);
}

}  // namespace
}  // namespace quire
