// SPDX-License-Identifier: Apache-2.0

// `quirectl bench` with the real programs.

#include <csignal>
#include <iterator>
#include <regex>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster.h"
#include "tests/e2e/quirectl.h"

namespace quire {
namespace {

using testing::HasSubstr;

class QuirectlBenchTest : public QuirectlTest {
 protected:
  // Runs a load that succeeds and returns its JSON report.
  static nlohmann::json Bench(const std::string& flags) {
    const Ended run = Shell(absl::StrCat("quirectl -o json bench ", flags, " 2> /dev/null"));
    EXPECT_EQ(run.exit_code, 0) << flags << ": " << run.output;
    return nlohmann::json::parse(run.output, nullptr, /*allow_exceptions=*/false);
  }
};

TEST_F(QuirectlBenchTest, EveryRequestIsCountedToItsLastToken) {
  const std::string lengths = "--requests 8 --input-tokens 10..40 --output-tokens 2..9 --no-prefix-cache ";
  const uint64_t prompt_tokens_before = cluster_->client().GetStatus()->prompt_tokens();
  const nlohmann::json all_at_once = Bench(lengths);
  EXPECT_EQ(all_at_once["completed"], 8);
  EXPECT_EQ(all_at_once["failed"], 0);
  EXPECT_EQ(all_at_once["preemptions"], 0);
  EXPECT_EQ(cluster_->client().GetStatus()->prompt_tokens() - prompt_tokens_before, all_at_once["total_input_tokens"]);
  EXPECT_GT(all_at_once["median_ttft_ms"], 0);
  EXPECT_LE(all_at_once["median_ttft_ms"], all_at_once["p99_ttft_ms"]);
  for (const char* flags : {"--concurrency 1", "--rate 200 --burstiness 0.5", "--concurrency 3 --multiplex"}) {
    const nlohmann::json load = Bench(lengths + flags);
    EXPECT_EQ(load["completed"], 8) << flags;
    EXPECT_EQ(load["total_input_tokens"], all_at_once["total_input_tokens"]) << flags;
    EXPECT_EQ(load["total_output_tokens"], all_at_once["total_output_tokens"]) << flags;
  }
}

TEST_F(QuirectlBenchTest, SamplesAndBeamsAndPrefixesAreLoad) {
  EXPECT_EQ(Bench("--requests 2 --n 3 --output-tokens 5")["total_output_tokens"], 30);
  EXPECT_EQ(Bench("--requests 2 --beams 3 --output-tokens 5")["completed"], 2);
  const nlohmann::json shared = Bench("--requests 4 --concurrency 1 --shared-prefix-tokens 200 --seed 7 --warmup 1");
  EXPECT_GE(shared["total_cached_tokens"], 4 * 192);
  EXPECT_EQ(shared["total_input_tokens"], 4 * 328);
}

TEST_F(QuirectlBenchTest, TheReportIsForPeopleAndForFiles) {
  const Ended run = Shell(
      "file=$(mktemp); quirectl bench --requests 3 --slo ttft:1h,itl:1h --save $file 2>&1 && cat $file; rm $file");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("Successful requests:                 3\n"));
  EXPECT_THAT(run.output, HasSubstr("(100.0 % of requests)\n"));
  EXPECT_THAT(run.output, HasSubstr("\nTime to first token  "));
  EXPECT_THAT(run.output, HasSubstr("\"goodput\": \"ttft:1h,itl:1h\""));
  EXPECT_THAT(run.output, testing::Not(HasSubstr("\033"))) << "no terminal, no bar";
}

TEST_F(QuirectlBenchTest, ControlCPrintsWhatWasMeasured) {
  Process bench({Binary("quirectl"), "--endpoint", cluster_->endpoint(), "bench", "--rate", "100", "--duration", "600",
                 "--output-tokens", "2"});
  ASSERT_NE(bench.WaitForLine("in flight"), "");
  bench.Signal(SIGINT);
  EXPECT_EQ(bench.Wait(), 128 + SIGINT);
  EXPECT_THAT(bench.Output(), HasSubstr("\nSuccessful requests:  "));
  EXPECT_THAT(bench.Output(), HasSubstr("Failed requests:                     0\n"));
  EXPECT_TRUE(cluster_->WaitUntilIdle());
}

TEST_F(QuirectlBenchTest, TopShowsTheLoad) {
  const nlohmann::json before = nlohmann::json::parse(Quirectl({"-o", "json", "top"}).output);
  const nlohmann::json load = Bench("--rate 30 --requests 10 --output-tokens 20");
  ASSERT_TRUE(cluster_->WaitUntilIdle());  // The last tokens are published after the client has them.
  const nlohmann::json after = nlohmann::json::parse(Quirectl({"-o", "json", "top"}).output);
  const auto increase = [&](const char* name) {
    return std::stoll(after[name].get<std::string>()) - std::stoll(before[name].get<std::string>());
  };
  EXPECT_EQ(load["completed"], 10);
  EXPECT_EQ(increase("prompt_tokens"), load["total_input_tokens"]);
  EXPECT_EQ(increase("completion_tokens"), load["total_output_tokens"]);

  Process bench({Binary("quirectl"), "--endpoint", cluster_->endpoint(), "bench", "--rate", "30", "--duration", "600"});
  ASSERT_NE(bench.WaitForLine("in flight"), "");
  // The first of two frames counts from the manager's start. How many tokens come between the two depends on the
  // machine.
  const std::regex rate("tokens/s  [1-9][0-9.]* generated");
  const auto is_shown = [&] {
    const std::string frames = Quirectl({"top", "-n", "2", "-i", "0.3"}).output;
    return std::distance(std::sregex_iterator(frames.begin(), frames.end(), rate), {}) == 2;
  };
  bool was_shown = false;
  for (int i = 0; i < 100 && !was_shown; ++i) was_shown = is_shown();
  EXPECT_TRUE(was_shown);
  bench.Signal(SIGINT);
  EXPECT_EQ(bench.Wait(), 128 + SIGINT);
  EXPECT_TRUE(cluster_->WaitUntilIdle());
}

TEST_F(QuirectlBenchTest, TroubleIsToldAndHasItsCode) {
  struct Wrong {
    const char* flags;
    const char* message;
    int exit_code;
  };
  for (const Wrong& wrong : {
           Wrong{"--rate 0", "--rate is \"0\", expected requests per second", 2},
           Wrong{"--rate 3 --concurrency 3", "excludes", 2},
           Wrong{"--input-tokens 5..2", "--input-tokens is \"5..2\", expected", 2},
           Wrong{"--input-tokens 1020 --output-tokens 9", "up to 1029 tokens", 2},
           Wrong{"--duration 5", "--duration needs --rate", 2},
           Wrong{"--slo ttft:soon", "--slo has \"ttft:soon\"", 2},
           Wrong{"--trace /nonexistent", "cannot read the trace /nonexistent", 2},
           Wrong{"--requests 2 --tenant 'a b'", "tenant: ", 4},
           Wrong{"--requests 2 --save /nonexistent/report", "--save: cannot write /nonexistent/report", 2},
           Wrong{"--requests 1 --timeout 0.001", "deadline_exceeded:                 1\n", 3},
       }) {
    const Ended run = Shell(absl::StrCat("quirectl bench ", wrong.flags));
    EXPECT_EQ(run.exit_code, wrong.exit_code) << wrong.flags << ": " << run.output;
    EXPECT_THAT(run.output, HasSubstr(wrong.message));
  }
  EXPECT_EQ(quire::Quirectl("unix:/nonexistent", {"bench"}).exit_code, 3);
  EXPECT_THAT(Quirectl({"bench", "--help"}).output, HasSubstr("--shared-prefix-tokens"));
}

}  // namespace
}  // namespace quire
