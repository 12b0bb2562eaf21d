// Flags, sockets and usage of a program: base/flags.h, base/unix_socket.h, base/process_usage.h.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/flags.h"
#include "base/process_usage.h"
#include "base/unix_socket.h"
#include "gtest/gtest.h"

ABSL_FLAG(int32_t, block_count, 7, "How many blocks.");
ABSL_FLAG(bool, be_loud, false, "Whether to shout.");
ABSL_FLAG(double, share, 0.5, "A share.");
ABSL_FLAG(absl::Duration, patience, absl::Seconds(3), "How long to wait.");
ABSL_FLAG(std::string, hidden, "", "Not among the names.");

namespace quire {
namespace {

constexpr const char* kNames[] = {"block_count", "be_loud", "share", "patience"};

std::string Error(const std::vector<const char*>& arguments) {
  const absl::FlagSaver saver;
  return std::string(SetFlags(arguments, kNames).message());
}

TEST(FlagsTest, ValuesFollowTheFlagOrAnEqualsSign) {
  const absl::FlagSaver saver;
  ASSERT_TRUE(SetFlags(std::vector<const char*>{"--block-count=8", "--patience", "2m", "--be_loud"}, kNames).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_block_count), 8);
  EXPECT_EQ(absl::GetFlag(FLAGS_patience), absl::Minutes(2));
  EXPECT_TRUE(absl::GetFlag(FLAGS_be_loud));
  ASSERT_TRUE(SetFlags(std::vector<const char*>{"--be-loud=false"}, kNames).ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_be_loud));
}

TEST(FlagsTest, AnErrorIsOneLineWithFlagAndValue) {
  EXPECT_EQ(Error({"--block-count=x"}), "--block-count is 'x', it must be a whole number");
  EXPECT_EQ(Error({"--share=x"}), "--share is 'x', it must be a number");
  EXPECT_EQ(Error({"--be-loud=x"}), "--be-loud is 'x', it must be true or false");
  EXPECT_EQ(Error({"--patience=3"}), "--patience is '3', it must be a duration such as 30s or 500ms");
  EXPECT_EQ(Error({"--share"}), "--share has no value");
  EXPECT_EQ(Error({"share"}), "'share' is not a flag; see --help");
  EXPECT_EQ(Error({"--hidden=x"}), "there is no flag --hidden; see --help");
}

TEST(FlagsTest, TheHelpShowsNameDefaultAndMeaning) {
  EXPECT_EQ(DescribeFlags({"block_count"}), "  --block-count=7\n      How many blocks.\n");
}

TEST(UnixSocketTest, OnlyASocketThatSomebodyListensOnIsInUse) {
  const std::string path = absl::StrCat(testing::TempDir(), "/quire_program_test.", getpid());
  const std::string address = absl::StrCat("unix:", path);
  EXPECT_FALSE(IsUnixSocketInUse(address));
  EXPECT_FALSE(IsUnixSocketInUse("127.0.0.1:1"));
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, path.c_str(), sizeof(name.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_TRUE(IsUnixSocketInUse(address));
  close(fd);
  EXPECT_FALSE(IsUnixSocketInUse(address)) << "only the file is left";
  unlink(path.c_str());
}

TEST(ProcessUsageTest, ThisProcessUsesMemoryAndHasStarted) {
  const ProcessUsage usage = ReadProcessUsage();
  EXPECT_GT(usage.resident_bytes, 1 << 20);
  EXPECT_GE(usage.cpu_seconds, 0);
  EXPECT_GT(usage.start_time_seconds, 0);
}

}  // namespace
}  // namespace quire
