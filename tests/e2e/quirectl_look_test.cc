// SPDX-License-Identifier: Apache-2.0

// The commands that look inside a manager, with the real programs.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster.h"
#include "tests/e2e/quirectl.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

// All tests share a manager with two workers. Each step of these takes 10 ms, so a request of 900 tokens takes at least
// nine seconds, however slow the commands are beside it.
class QuirectlLookTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = new Cluster({.model = BundledModel(), .num_workers = 2, .worker_flags = {"--device=simulated"}});
  }
  static void TearDownTestSuite() { delete cluster_; }

  static Ended Quirectl(std::vector<std::string> arguments) {
    return quire::Quirectl(cluster_->endpoint(), std::move(arguments));
  }
  static Ended Shell(const std::string& line) { return quire::Shell(cluster_->endpoint(), line); }
  static nlohmann::json Json(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-o", "json"});
    const Ended run = Quirectl(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return nlohmann::json::parse(run.output, nullptr, /*allow_exceptions=*/false);
  }
  static std::string Worker(int i) { return Json({"status"})["workers"][i]["address"].get<std::string>(); }
  // Runs `line` while a request of three samples, "long", runs.
  static Ended WhileARequestRuns(const std::string& line) {
    const Ended run = Shell(
        absl::StrCat("quirectl generate 'Once upon a time there was a fox who had a very red hat and a very small dog' "
                     "-n 900 --ignore-eos --samples 3 --request-id long > /dev/null 2>&1 & "
                     "until quirectl tree long 2> /dev/null | grep -q 'samples 0, 1, 2' || ! kill -0 $!; do :; done; ",
                     line, "; quirectl abort long > /dev/null 2>&1; ended=$?; wait $!; exit $ended"));
    EXPECT_EQ(run.exit_code, 0) << "The request had ended before: " << run.output;
    return run;
  }

  inline static Cluster* cluster_ = nullptr;
};

TEST_F(QuirectlLookTest, RequestsAreListed) {
  const Ended nobody = Quirectl({"requests"});
  EXPECT_EQ(nobody.exit_code, 0);
  EXPECT_THAT(nobody.output, MatchesRegex("REQUEST +STATE +AGE [^\n]*\n"));
  const Ended run = WhileARequestRuns("quirectl requests; quirectl requests -o json");
  EXPECT_THAT(run.output, HasSubstr("\nlong "));
  EXPECT_THAT(run.output, HasSubstr(" running "));
  EXPECT_THAT(run.output, HasSubstr("\"num_sequences\":3"));
  const Ended wrong = Quirectl({"requests", "-n", "0"});
  EXPECT_EQ(wrong.exit_code, 4);
  EXPECT_THAT(wrong.output, HasSubstr("max_requests: is 0, must be 1 .. 1000"));
}

TEST_F(QuirectlLookTest, ATreeShowsWhatSamplesShare) {
  const Ended run = WhileARequestRuns("quirectl tree long");
  EXPECT_THAT(run.output, HasSubstr("long, on worker unix:"));
  EXPECT_THAT(run.output, HasSubstr("\nsamples 0, 1, 2: entries 0 .. "));
  const Ended nobody = Quirectl({"tree", "nobody"});
  EXPECT_EQ(nobody.exit_code, 4);
  EXPECT_THAT(nobody.output, HasSubstr("no request \"nobody\" waits or runs"));
  EXPECT_EQ(Quirectl({"tree", ""}).exit_code, 2);
}

TEST_F(QuirectlLookTest, BlocksAreCountedAndDrawn) {
  const nlohmann::json status = Json({"status"});
  const int num_blocks = status["workers"][0]["blocks"]["total"];
  const Ended counts = Quirectl({"blocks"});
  EXPECT_EQ(counts.exit_code, 0) << counts.output;
  EXPECT_THAT(counts.output, HasSubstr(absl::StrCat(" ", num_blocks, " ")));
  const Ended map = Shell("COLUMNS=60 quirectl blocks --map -w " + Worker(1));
  EXPECT_EQ(map.exit_code, 0) << map.output;
  EXPECT_THAT(map.output, StartsWith("worker " + Worker(1) + ", step "));
  EXPECT_THAT(map.output, HasSubstr("\n       0  "));
  EXPECT_THAT(map.output, HasSubstr(". free   c cached"));
  EXPECT_THAT(map.output, Not(HasSubstr("\033"))) << "no terminal, no colours";
  const nlohmann::json json = Json({"blocks", "-w", Worker(0)});
  std::string states;
  ASSERT_TRUE(absl::Base64Unescape(json["snapshot"]["states"].get<std::string>(), &states));
  EXPECT_EQ(static_cast<int>(states.size()), num_blocks);
  const Ended unknown = Quirectl({"blocks", "-w", "nowhere:1"});
  EXPECT_EQ(unknown.exit_code, 4);
  EXPECT_THAT(unknown.output, HasSubstr("worker: none has the address \"nowhere:1\"; there are unix:"));
}

TEST_F(QuirectlLookTest, ABlockTellsItsOwners) {
  const Ended run = WhileARequestRuns(
      "tree=$(quirectl tree long -o json); "
      "worker=$(echo \"$tree\" | sed 's/.*\"worker\":\"\\([^\"]*\\)\".*/\\1/'); "
      "block=$(echo \"$tree\" | sed 's/.*\"blocks\":\\[\\([0-9]*\\).*/\\1/'); "
      "quirectl blocks -w $worker --block $block");
  EXPECT_THAT(run.output, HasSubstr(": shared, 4 references\n")) << "three samples and the cache";
  EXPECT_THAT(run.output, HasSubstr("request long, sample 2: tokens 0 .. 15\n"));
  EXPECT_THAT(run.output, HasSubstr("the prefix cache: block 1 of prefix "));
  const Ended which = Quirectl({"blocks", "--block", "0"});
  EXPECT_EQ(which.exit_code, 4);
  EXPECT_THAT(which.output, HasSubstr("worker: is empty, and the manager has 2 workers"));
  const Ended beyond = Quirectl({"blocks", "-w", Worker(0), "--block", "4000000000"});
  EXPECT_THAT(beyond.output, HasSubstr("block: is 4000000000, the pool of worker "));
}

TEST_F(QuirectlLookTest, AnAuditOfARealPairIsClean) {
  const Ended run = WhileARequestRuns("quirectl audit; echo exit $?");
  EXPECT_THAT(run.output, HasSubstr(" references, 0 differences\n"));
  EXPECT_THAT(run.output, HasSubstr("  3 rows of the worker compared, 0 differ\n"));
  EXPECT_THAT(run.output, HasSubstr("exit 0"));
  EXPECT_EQ(Json({"audit", "--repair"})["workers"].size(), 2u);
}

TEST_F(QuirectlLookTest, AFlushEmptiesTheCache) {
  std::string prompt;
  for (int i = 0; i < 20; ++i) prompt += "A cat sat on the mat. ";
  ASSERT_EQ(Quirectl({"generate", prompt, "-n", "1"}).exit_code, 0);
  ASSERT_TRUE(cluster_->WaitUntilIdle());
  int num_freed = 0;
  const nlohmann::json flushed = Json({"flush"});
  for (const auto& worker : flushed["workers"]) {
    num_freed += worker["freed_blocks"].get<int>();
    EXPECT_EQ(worker["cached_blocks"], 0);
  }
  EXPECT_GT(num_freed, 4);
  EXPECT_THAT(Quirectl({"flush"}).output, HasSubstr(": 0 blocks freed, 0 still cached\n"));
}

TEST_F(QuirectlLookTest, ADrainedWorkerGetsNothingNewUntilItIsUndrained) {
  const Ended drain = Quirectl({"drain", Worker(0), "--wait", "--timeout", "30"});
  EXPECT_EQ(drain.exit_code, 0) << drain.output;
  EXPECT_THAT(drain.output, HasSubstr("has no requests any more\n"));
  EXPECT_EQ(Quirectl({"drain", Worker(0), "--migrate", "--wait", "--timeout", "30"}).exit_code, 0);

  const std::string before = Json({"status"})["workers"][0]["steps"];
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Quirectl({"generate", "Once", "-n", "2"}).exit_code, 0);
  EXPECT_EQ(Json({"status"})["workers"][0]["steps"], before);
  EXPECT_TRUE(Json({"status"})["workers"][0]["is_draining"]);
  EXPECT_EQ(Quirectl({"drain", Worker(1)}).exit_code, 0);
  EXPECT_EQ(Quirectl({"health", "readiness"}).exit_code, 3);
  const Ended refused = Quirectl({"generate", "Once", "-n", "2"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.output, HasSubstr("; an operator drains 2, `quirectl undrain` ends that"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Quirectl({"undrain", Worker(i)}).exit_code, 0);
  EXPECT_EQ(Quirectl({"health", "readiness"}).exit_code, 0);
  EXPECT_EQ(Quirectl({"drain", "nowhere:1"}).exit_code, 4);
  EXPECT_EQ(Quirectl({"drain", Worker(0), "--timeout", "1"}).exit_code, 2) << "without --wait";
}

TEST_F(QuirectlLookTest, TopShowsOneFrameWhereThereIsNoTerminal) {
  ASSERT_EQ(Quirectl({"generate", "Once", "-n", "5"}).exit_code, 0);
  const Ended top = Quirectl({"top"});
  EXPECT_EQ(top.exit_code, 0);
  EXPECT_THAT(top.output, StartsWith("quire-manager "));
  EXPECT_THAT(top.output, HasSubstr(" generated  "));
  EXPECT_THAT(top.output, MatchesRegex("(.|\n)*TTFT p50 [0-9.]+ m?s  p95 [0-9.]+ m?s(.|\n)*"));
  EXPECT_THAT(top.output, HasSubstr("blocks used: "));
  EXPECT_THAT(top.output, Not(HasSubstr("\033")));
  const Ended two = Quirectl({"top", "-n", "2", "-i", "0.1", "-o", "json"});
  EXPECT_EQ(std::count(two.output.begin(), two.output.end(), '\n'), 2);
  EXPECT_THAT(two.output, HasSubstr("\"time_to_first_token\":{\"upper_bounds_seconds\":["));
}

TEST_F(QuirectlLookTest, HelpTeaches) {
  for (const char* command : {"top", "requests", "tree", "blocks", "audit", "drain", "undrain", "flush"}) {
    const Ended help = Quirectl({command, "--help"});
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_THAT(help.output, HasSubstr(".")) << command;
  }
  EXPECT_EQ(Quirectl({"blocks", "--map", "--block", "1"}).exit_code, 2);
  EXPECT_THAT(Quirectl({"blocks", "--help"}).output, Not(HasSubstr("Excludes")));
}

}  // namespace
}  // namespace quire
