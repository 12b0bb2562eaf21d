#include "kv_manager/options.h"

#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Flags live as long as the process: each parse starts from the defaults.
absl::StatusOr<ManagerOptions> Parse(const std::vector<const char*>& args) {
  const absl::FlagSaver saver;
  return ParseOptions(args);
}

std::string Error(const std::vector<const char*>& args) {
  const absl::Status status = Parse(args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
  return std::string(status.message());
}

TEST(OptionsTest, TheDefaultsAreLocal) {
  const absl::StatusOr<ManagerOptions> options = Parse({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen, "127.0.0.1:50051");
  EXPECT_EQ(options->metrics_listen, "127.0.0.1:9460");
  EXPECT_THAT(options->workers, ElementsAre("127.0.0.1:50061"));
}

TEST(OptionsTest, DashesUnderscoresAndBothFormsAreTaken) {
  const absl::StatusOr<ManagerOptions> options =
      Parse({"--workers=a:1,unix:/b", "--max_chunk-tokens=7", "--worker-grace", "2m", "--policy=priority",
             "--watermark=0.25", "--log_level", "debug", "--metrics-listen="});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->workers, ElementsAre("a:1", "unix:/b"));
  EXPECT_EQ(options->scheduler.max_chunk_tokens, 7);
  EXPECT_EQ(options->worker_grace, absl::Minutes(2));
  EXPECT_EQ(options->scheduler.policy, SchedulingPolicy::kPriority);
  EXPECT_EQ(options->scheduler.watermark, 0.25);
  EXPECT_EQ(options->log_level, LogLevel::kDebug);
  EXPECT_EQ(options->metrics_listen, "");
}

TEST(OptionsTest, ErrorsNameFlagValueAndLimit) {
  EXPECT_EQ(Error({"--max-tokens-per-step=0"}), "--max-tokens-per-step is 0, it must be 1 .. 1073741824");
  EXPECT_EQ(Error({"--max-chunk-tokens=many"}), "--max-chunk-tokens is 'many', it must be a whole number");
  EXPECT_EQ(Error({"--max-context-tokens=1"}), "--max-context-tokens is 1, it must be 0 or at least 2");
  EXPECT_EQ(Error({"--max-plans-in-flight=3"}), "--max-plans-in-flight is 3, it must be 1 .. 2");
  EXPECT_EQ(Error({"--watermark=1"}), "--watermark is 1, it must be in [0, 1)");
  EXPECT_EQ(Error({"--watermark=nan"}), "--watermark is nan, it must be in [0, 1)");
  EXPECT_EQ(Error({"--step-timeout=5"}), "--step-timeout is '5', it must be a duration such as 30s or 500ms");
  EXPECT_EQ(Error({"--drain-timeout=-1s"}), "--drain-timeout is -1s, it must be more than 0 and at most 24h");
  EXPECT_EQ(Error({"--policy=best"}), "--policy is 'best', it must be one of fcfs, priority");
  EXPECT_EQ(Error({"--workers=a:1,,b:1"}), "--workers is 'a:1,,b:1', it has an empty address");
  EXPECT_EQ(Error({"--workers=a:1,dns:///name"}),
            "--workers is 'a:1,dns:///name', 'dns:///name' in it must be dns:///name:port");
  EXPECT_THAT(Error({"--workers=dns:///name:"}), HasSubstr("must be dns:///name:port"));
  EXPECT_TRUE(Parse({"--workers=dns:///name:1"}).ok());
}

TEST(OptionsTest, WhatIsNotAFlagOfOursIsRefused) {
  EXPECT_THAT(Error({"--wrokers=a:1"}), HasSubstr("--wrokers"));
  EXPECT_THAT(Error({"workers"}), HasSubstr("'workers'"));
  EXPECT_EQ(Error({"--listen"}), "--listen has no value");
  EXPECT_THAT(Error({"--flagfile=x"}), HasSubstr("--flagfile"));
}

TEST(OptionsTest, TheHelpShowsEveryFlagAsItIsTyped) {
  EXPECT_THAT(OptionsHelp(), HasSubstr("--max-tokens-per-step=2048\n"));
  EXPECT_THAT(OptionsHelp(), HasSubstr("--drain-timeout=30s\n"));
}

}  // namespace
}  // namespace quire
