// SPDX-License-Identifier: Apache-2.0

// quirectl as users and scripts see it.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster.h"
#include "tests/e2e/quirectl.h"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

TEST_F(QuirectlTest, GenerateStreamsText) {
  const Ended run = Quirectl({"generate", "Once upon a time", "-n", "20", "-t", "0", "--echo", "--usage"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output, StartsWith("Once upon a time"));
  EXPECT_THAT(run.output, HasSubstr("20 generated tokens"));
}

TEST_F(QuirectlTest, WithoutTokensToGenerateOnlyThePromptIsShown) {
  const Ended run = Quirectl({"generate", "Once upon a time", "-n", "0", "--echo", "--usage"});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, StartsWith("Once upon a time\n"));
  EXPECT_THAT(run.output, HasSubstr(" 0 generated tokens"));
}

TEST_F(QuirectlTest, AnAnswerThatTheDefaultLengthCutSaysSo) {
  const Ended cut = Shell("quirectl generate Once -t 0 --ignore-eos 2>&1 >/dev/null");
  EXPECT_EQ(cut.exit_code, 0);
  EXPECT_EQ(cut.output, "quirectl: stopped after 128 tokens; -n allows more, up to the model's context\n");
  const Ended several = Shell("quirectl generate Once --samples 2 --ignore-eos --seed 1 2>&1 >/dev/null");
  EXPECT_EQ(several.output,
            "quirectl: answer 0 stopped after 128 tokens; -n allows more, up to the model's context\n"
            "quirectl: answer 1 stopped after 128 tokens; -n allows more, up to the model's context\n");
  const std::string long_prompt = "$(printf 'Once upon a time %.0s' $(seq 200))";  // The context has 1024 tokens.
  EXPECT_THAT(Shell("quirectl generate \"" + long_prompt + "\" --ignore-eos 2>&1 >/dev/null").output,
              MatchesRegex("quirectl: stopped after [0-9]+ tokens; the model's context, or the worker's pool, has no "
                           "room for more\n"));
  EXPECT_EQ(Shell("quirectl generate Once -t 0 --ignore-eos -n 128 2>&1 >/dev/null").output, "")
      << "whoever chooses the length knows it";
  EXPECT_EQ(Shell("quirectl generate Once -t 0 --ignore-eos -o json 2>&1 >/dev/null").output, "")
      << "the JSON has the reason";
}

TEST(QuirectlLongChatTest, AnAnswerThatTheDefaultLengthCutSaysSo) {
  const TestDirectory model;
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    model.CopyFrom(BundledModel(), name);
  }
  Cluster cluster({.model = model.path(), .worker_flags = {"--device=simulated", "--simulated-step-times=0"}});
  const Ended cut = Shell(cluster.endpoint(), "echo Once | quirectl chat -t 0 2>&1 >/dev/null");
  EXPECT_EQ(cut.output, "quirectl: stopped after 512 tokens; -n allows more, up to the model's context\n");
  EXPECT_EQ(Shell(cluster.endpoint(), "echo Once | quirectl chat -t 0 -n 512 2>&1 >/dev/null").output, "");
}

TEST(QuirectlTokenIdsTest, WithoutATokenizerTheAnswerIsTokenIds) {
  const TestDirectory model;
  model.CopyFrom(BundledModel(), "config.json");
  Cluster cluster({.model = model.path(), .worker_flags = {"--device=simulated", "--simulated-step-times=0"}});
  const Ended json = Shell(cluster.endpoint(), "quirectl generate --prompt-ids 5,6 -n 6 -t 0 -o json");
  std::string ids;
  std::istringstream lines(json.output);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json response = nlohmann::json::parse(line);
    for (const auto& id : response["token_ids"]) absl::StrAppend(&ids, ids.empty() ? "" : " ", id.dump());
  }
  EXPECT_EQ(std::count(ids.begin(), ids.end(), ' '), 5) << ids;
  const std::string why = "quirectl: the model has no tokenizer, so these are token ids\n";
  const Ended text = Shell(cluster.endpoint(), "quirectl generate --prompt-ids 5,6 -n 6 -t 0 2>/dev/null");
  EXPECT_EQ(text.output, ids + "\n");
  EXPECT_EQ(Shell(cluster.endpoint(), "quirectl generate --prompt-ids 5,6 -n 6 2>&1 >/dev/null").output, why);
  const Ended samples = Shell(cluster.endpoint(), "quirectl generate --prompt-ids 5,6 -n 6 --samples 2 --seed 1");
  EXPECT_EQ(samples.output.find(why), samples.output.rfind(why)) << samples.output;
  EXPECT_THAT(samples.output, MatchesRegex("(.*\n)?--- 0 ---\n([0-9]+ ){5}[0-9]+\n\n--- 1 ---\n([0-9]+ ){5}[0-9]+\n"));
  const Ended logprobs =
      Shell(cluster.endpoint(), "quirectl generate --prompt-ids 5,6 -n 1 -t 0 --logprobs 0 2>/dev/null");
  EXPECT_THAT(logprobs.output, HasSubstr(absl::StrCat(" ", ids.substr(0, ids.find(' ')), "\n")));
}

TEST_F(QuirectlTest, JsonIsOneObjectPerLineWithProtoFieldNames) {
  const Ended run = Quirectl({"-o", "json", "generate", "Once upon a time", "-n", "5", "-t", "0", "--logprobs", "2"});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  int num_tokens = 0;
  std::string reason;
  std::istringstream lines(run.output);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json response = nlohmann::json::parse(line);
    num_tokens += static_cast<int>(response["token_ids"].size());
    EXPECT_EQ(response["logprobs"].size(), response["token_ids"].size());
    reason = response["finish_reason"];
  }
  EXPECT_EQ(num_tokens, 5);
  EXPECT_EQ(reason, "FINISH_REASON_LENGTH");
}

TEST_F(QuirectlTest, ChatAnswersEachLineOfAPipe) {
  const Ended story = Quirectl({"generate", "Once upon a time", "-n", "20", "-t", "0"});
  ASSERT_EQ(story.exit_code, 0) << story.output;
  const Ended chat = Shell("printf 'Once upon a time\\n\\n/reset\\nOnce upon a time\\n' | quirectl chat -n 20 -t 0");
  EXPECT_EQ(chat.exit_code, 0);
  EXPECT_EQ(chat.output, story.output + story.output) << "the template of the model continues stories";
  // The second message follows the first answer.
  const std::string conversation = "Once upon a time" + story.output.substr(0, story.output.size() - 1) + " One day,";
  const Ended second = Quirectl({"generate", conversation, "-n", "20", "-t", "0"});
  const Ended both = Shell("printf 'Once upon a time\\nOne day,\\n/quit\\nnever' | quirectl chat -n 20 -t 0");
  EXPECT_EQ(both.exit_code, 0);
  EXPECT_EQ(both.output, story.output + second.output);
}

TEST_F(QuirectlTest, ChatReadsLinesThatEndAsOnWindows) {
  const Ended unix_lines = Shell("printf 'Once upon a time\\n/quit\\nnever' | quirectl chat -n 5 -t 0");
  const Ended windows_lines = Shell("printf 'Once upon a time\\r\\n/quit\\r\\nnever' | quirectl chat -n 5 -t 0");
  EXPECT_EQ(windows_lines.exit_code, 0);
  EXPECT_EQ(windows_lines.output, unix_lines.output);
}

TEST_F(QuirectlTest, ChatEndsAtTheFirstErrorInAPipe) {
  const Ended unknown = Shell("printf '/sytem x\\nOnce' | quirectl chat -n 5");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output, StartsWith("quirectl: \"/sytem x\" is not a command: /system TEXT begins"));
  const Ended refused = Shell("printf 'Once' | quirectl chat -n 5 --template-kwargs '[]'");
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.output, HasSubstr("--template-kwargs is not a JSON object"));
  const Ended no_text = Shell("echo /system | quirectl chat");
  EXPECT_EQ(no_text.exit_code, 2);
  EXPECT_THAT(no_text.output, HasSubstr("/system needs a text"));
  const Ended too_long = Shell("seq 2000 | paste -sd ' ' | quirectl chat -n 5");
  EXPECT_EQ(too_long.exit_code, 4);
  EXPECT_THAT(too_long.output, HasSubstr("and the model's context is 1024; /reset begins a new one"));
  EXPECT_THAT(too_long.output, Not(HasSubstr("--max-tokens")));
}

TEST_F(QuirectlTest, TokenizeAndDetokenizeAreInverse) {
  const Ended tokens = Quirectl({"tokenize", "Once upon a time", "-o", "json", "--no-special-tokens"});
  ASSERT_EQ(tokens.exit_code, 0) << tokens.output;
  std::vector<std::string> arguments = {"detokenize"};
  const nlohmann::json response = nlohmann::json::parse(tokens.output);
  for (const auto& id : response["token_ids"]) {
    arguments.push_back(std::to_string(id.get<int>()));
  }
  const Ended text = Quirectl(arguments);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.output, "Once upon a time\n");
}

TEST_F(QuirectlTest, StatusAndModelAndHealthAnswer) {
  EXPECT_THAT(Quirectl({"status"}).output, HasSubstr("ready"));
  const std::string model = Quirectl({"model"}).output;
  EXPECT_THAT(model, HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(model, HasSubstr("chat          yes\n"));
  EXPECT_THAT(model, HasSubstr(" (0) is added, because the tokenizer says so: post_processor in tokenizer.json"));
  for (const char* service : {"", "liveness", "readiness", "quire.v1.InferenceService"}) {
    const Ended health = Quirectl({"health", service});
    EXPECT_EQ(health.exit_code, 0) << service;
    EXPECT_EQ(health.output, "SERVING\n") << service;
  }
}

TEST_F(QuirectlTest, EmbedTellsHowSimilarTextsAre) {
  const Ended equal = Quirectl({"embed", "The fox ran.", "The fox ran.", "One day"});
  EXPECT_EQ(equal.exit_code, 0) << equal.output;
  EXPECT_THAT(equal.output, MatchesRegex("text 1: 128 values, [0-9]+ tokens\n"
                                         "text 2: 128 values, [0-9]+ tokens, cosine with text 1: 1\\.0000\n"
                                         "text 3: 128 values, [0-9]+ tokens, cosine with text 1: -?0\\.[0-9]+\n"));
  const auto embeddings = [this](const std::string& command) {
    const Ended run = Shell(command);
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return nlohmann::json::parse(run.output)["embeddings"];
  };
  const auto lines = embeddings("printf 'The fox ran.\nOne day\n' | quirectl embed - --lines -o json");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["values"].size(), 128u);
  EXPECT_NE(lines[0]["values"], lines[1]["values"]);
  const auto text = embeddings("printf 'The fox ran.\nOne day\n' | quirectl embed - -o json");
  EXPECT_EQ(text.size(), 1u) << "without --lines it is one text";
  const auto length = [](const nlohmann::json& embedding) {
    double squares = 0;
    for (const double value : embedding["values"]) squares += value * value;
    return std::sqrt(squares);
  };
  const auto few = embeddings("quirectl embed 'The fox ran.' --dimensions 8 --normalize -o json");
  EXPECT_EQ(few[0]["values"].size(), 8u);
  EXPECT_NEAR(length(few[0]), 1, 1e-5);
  EXPECT_NEAR(length(lines[0]), 1, 1e-5) << "as the model wants it";
  EXPECT_GT(length(embeddings("quirectl embed 'The fox ran.' --no-normalize -o json")[0]), 1.5);
}

TEST_F(QuirectlTest, EmbedSaysWhatIsWrong) {
  const Ended lines = Quirectl({"embed", "a", "--lines"});
  EXPECT_EQ(lines.exit_code, 2);
  EXPECT_THAT(lines.output, HasSubstr("--lines needs \"-\" as the only text"));
  const Ended many = Quirectl({"embed", "a", "--dimensions", "129"});
  EXPECT_EQ(many.exit_code, 4);
  EXPECT_THAT(many.output, HasSubstr("dimensions: is 129, the embeddings of the model have 128 values"));
}

TEST_F(QuirectlTest, APromptIsPinnedOnceARequestWithItHasRun) {
  std::string prompt;
  for (int i = 0; i < 40; ++i) prompt += "The fox had a red hat. ";
  const Ended early = Quirectl({"pin", prompt});
  EXPECT_EQ(early.exit_code, 1);
  EXPECT_THAT(early.output, HasSubstr("nothing is pinned: no whole block of this prompt is cached"));
  ASSERT_EQ(Quirectl({"generate", prompt, "-n", "1"}).exit_code, 0);

  const Ended pin = Quirectl({"pin", prompt, "--ttl", "60", "-o", "json"});
  EXPECT_EQ(pin.exit_code, 0);
  const nlohmann::json response = nlohmann::json::parse(pin.output);
  const int num_pinned = response["workers"][0]["pinned_tokens"];
  EXPECT_GT(num_pinned, 100);
  EXPECT_LE(num_pinned, response["prompt_tokens"]);
  EXPECT_THAT(Quirectl({"pin", prompt}).output, HasSubstr(absl::StrCat(num_pinned, " of ")));
  EXPECT_THAT(Quirectl({"status"}).output, HasSubstr("blocks are pinned"));

  EXPECT_EQ(Quirectl({"unpin", prompt}).exit_code, 0);
  const Ended again = Quirectl({"unpin", prompt});
  EXPECT_EQ(again.exit_code, 4);
  EXPECT_THAT(again.output, HasSubstr("no worker has a pin"));
  const Ended without_time = Quirectl({"pin", prompt, "--ttl", "0"});
  EXPECT_EQ(without_time.exit_code, 2);
  EXPECT_THAT(without_time.output, HasSubstr("--ttl is 0, it must be a whole number, 1 .. 86400"));
}

TEST_F(QuirectlTest, ExplainSaysWhereARequestStands) {
  const Ended run = Shell(
      "quirectl generate Once -n 900 --samples 32 --ignore-eos --request-id long > /dev/null & n=0; "
      "until quirectl explain long | grep ', runs' || [ $n -ge 100 ]; do n=$((n+1)); done; "
      "quirectl abort long; wait $!; echo exit $?");
  EXPECT_THAT(run.output, HasSubstr("quirectl: the request was aborted\nexit 5"));
  EXPECT_THAT(run.output, HasSubstr("long, on worker unix:"));
  EXPECT_THAT(run.output, HasSubstr(", runs\n"));
  const Ended nobody = Quirectl({"explain", "nobody"});
  EXPECT_EQ(nobody.exit_code, 4);
  EXPECT_THAT(nobody.output, HasSubstr("no request \"nobody\" waits or runs"));
}

TEST(QuirectlSlowTest, AnAnswerThatTheTimeoutEndsAndARequestThatIsAbortedBeforeItsFirstTokenSaySo) {
  const TestDirectory model;
  for (const char* name : {"config.json", "tokenizer.json"}) model.CopyFrom(BundledModel(), name);
  const std::string step_times = model.path() + "/steps.yaml";
  std::ofstream(step_times) << "step: 100ms\n";
  Cluster cluster(
      {.model = model.path(),
       .worker_flags = {"--device=simulated", "--simulated-step-times=" + step_times, "--max-sequences=1"}});
  const Ended too_late = Shell(cluster.endpoint(), "quirectl generate Once -n 900 --ignore-eos --timeout 1ms 2>&1");
  EXPECT_EQ(too_late.exit_code, 3) << too_late.output;
  const Ended late =
      Shell(cluster.endpoint(), "quirectl generate Once -n 900 --ignore-eos --timeout 1s 2>&1 >/dev/null");
  EXPECT_EQ(late.exit_code, 5);
  EXPECT_THAT(late.output, MatchesRegex("quirectl: --timeout ended the answer after [0-9]+ tokens\n"));
  const Ended aborted = Shell(cluster.endpoint(),
                              "quirectl generate Once -n 900 --ignore-eos --request-id first > /dev/null & "
                              "until quirectl explain first | grep -q ', runs'; do sleep 0.1; done; "
                              "quirectl generate Once --request-id second & second=$!; "
                              "until quirectl explain second | grep -q waits; do sleep 0.1; done; "
                              "quirectl abort second; wait $second; echo exit $?; quirectl abort first; wait");
  EXPECT_THAT(aborted.output, HasSubstr("quirectl: the request was aborted\nexit 1\n"));
}

TEST_F(QuirectlTest, ATimeMayHaveAUnit) {
  EXPECT_EQ(Quirectl({"--rpc-timeout", "1m", "generate", "Once", "-n", "1", "--timeout", "1h30m"}).exit_code, 0);
  EXPECT_EQ(Quirectl({"--rpc-timeout=5000ms", "status"}).exit_code, 0);
}

TEST_F(QuirectlTest, DashReadsStandardInput) {
  const Ended tokens = Shell("printf 'Once upon' | quirectl tokenize -");
  EXPECT_EQ(tokens.exit_code, 0);
  EXPECT_EQ(tokens.output, Quirectl({"tokenize", "Once upon"}).output);
  const Ended text = Shell("printf '66, 268\\n66' | quirectl detokenize -");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.output, Quirectl({"detokenize", "66", "268", "66"}).output);
  const Ended round = Shell("quirectl tokenize 'Once upon' -o json | quirectl detokenize -");
  EXPECT_EQ(round.exit_code, 0);
  EXPECT_EQ(round.output, "Once upon\n");
  const Ended story = Shell("printf 'Once upon' | quirectl generate - -t 0 -n 5 --echo");
  EXPECT_EQ(story.exit_code, 0);
  EXPECT_EQ(story.output, Quirectl({"generate", "Once upon", "-t", "0", "-n", "5", "--echo"}).output);
}

TEST_F(QuirectlTest, TheUsageLineFollowsTheTextOnALineOfItsOwn) {
  const Ended run = Quirectl({"generate", "Once", "-n", "5", "-t", "0", "--usage"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output, MatchesRegex("[^\n]+\n\\[2 prompt [+] 5 generated tokens [^\n]+\\]\n"));
}

TEST_F(QuirectlTest, LogprobsAreOneLinePerTokenInText) {
  const Ended run = Quirectl({"generate", "Once", "-n", "3", "-t", "0", "--logprobs", "2"});
  EXPECT_EQ(run.exit_code, 0);
  const char* line = " +-?[0-9.]+  #1 +\"[^\n]+\" +\"[^\n]+\" -?[0-9.]+  \"[^\n]+\" -[0-9.]+\n";
  EXPECT_THAT(run.output, MatchesRegex(absl::StrCat(line, line, line)));
}

TEST_F(QuirectlTest, SamplesFollowEachOtherUnderHeadings) {
  const Ended run = Quirectl({"generate", "Once upon", "-n", "9", "--ignore-eos", "--samples", "3", "--seed", "4"});
  EXPECT_EQ(run.exit_code, 0);
  std::string expected;
  for (int i = 0; i < 3; ++i) {
    const Ended alone = Quirectl({"generate", "Once upon", "-n", "9", "--ignore-eos", "--seed", absl::StrCat(4 + i)});
    absl::StrAppend(&expected, i == 0 ? "" : "\n", "--- ", i, " ---\n", alone.output);
  }
  EXPECT_EQ(run.output, expected);
}

TEST_F(QuirectlTest, HypothesesHaveScoresAndTheBestIsTheOneThatComesAlone) {
  const Ended two = Quirectl({"generate", "Once upon", "-n", "9", "--beam", "4", "--return", "2", "--usage"});
  EXPECT_EQ(two.exit_code, 0);
  EXPECT_THAT(two.output, MatchesRegex("--- 0, score -[0-9.]+ ---\n[^\n]+\n\\[9 tokens, finished: length\\]\n"
                                       "\n--- 1, score -[0-9.]+ ---\n[^\n]+\n\\[9 tokens, finished: length\\]\n"
                                       "\\[3 prompt [+] 18 generated tokens [^\n]+\\]\n"));
  const Ended best = Quirectl({"generate", "Once upon", "-n", "9", "--beam", "4"});
  EXPECT_THAT(two.output, HasSubstr(absl::StrCat(" ---\n", best.output, "[9 tokens")));
}

TEST_F(QuirectlTest, BestOfPrintsAsManyAsAskedFor) {
  const Ended run = Quirectl({"generate", "Once upon", "-n", "9", "--samples", "2", "--best-of", "4", "-o", "json"});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  std::istringstream lines(run.output);
  std::vector<double> scores;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json response = nlohmann::json::parse(line);
    EXPECT_EQ(response["index"], scores.size());
    scores.push_back(response["score"]);
  }
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_GE(scores[0], scores[1]);
}

TEST_F(QuirectlTest, FlagsOfASearchNeedOne) {
  const Ended run = Quirectl({"generate", "Once", "--return", "2"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.output, StartsWith("quirectl: --return requires --beam"));
}

TEST_F(QuirectlTest, WithoutMaxTokensALongPromptFillsTheContext) {
  std::string prompt;
  for (int i = 0; i < 190; ++i) prompt += "Once upon a time ";
  const Ended run = Quirectl({"generate", prompt, "-t", "0", "--ignore-eos", "--usage"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output, HasSubstr("[951 prompt + 73 generated tokens"));
  EXPECT_EQ(Quirectl({"generate", prompt, "-n", "128"}).exit_code, 4);
}

TEST_F(QuirectlTest, AStopTextDoesNotSwallowThePromptBehindIt) {
  const Ended run = Quirectl({"generate", "--stop", ".", "Once upon", "-t", "0", "--echo", "-n", "5"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output, StartsWith("Once upon"));
}

TEST_F(QuirectlTest, VersionAndHelpNeedNoManager) {
  EXPECT_THAT(Quirectl({"--version"}).output, MatchesRegex("quirectl [0-9]+[.][0-9]+[.][0-9]+\n"));
  EXPECT_EQ(Quirectl({"version"}).output, Quirectl({"--version"}).output);
  const Ended help = Quirectl({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(Quirectl({"help"}).output, help.output);
  EXPECT_EQ(Quirectl({"help", "status"}).output, Quirectl({"status", "--help"}).output);
  EXPECT_EQ(Quirectl({"help", "nothing"}).exit_code, 2);
  EXPECT_THAT(help.output, HasSubstr("Print the tokens of a text\n")) << "no command's line ends with a point";
  EXPECT_THAT(help.output, HasSubstr("Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 unavailable"));
  for (const char* command : {"status", "bench"}) {
    EXPECT_THAT(Quirectl({command, "--help"}).output, HasSubstr("\n`quirectl --help` lists the options that all"));
  }
}

size_t LongestLine(const std::string& text) {
  size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST_F(QuirectlTest, HelpFitsTheWidthOfTheTerminal) {
  for (const char* command : {"", "generate", "bench", "pin", "top", "audit"}) {
    EXPECT_LE(LongestLine(Shell(absl::StrCat("quirectl ", command, " --help")).output), 80u) << command;
    const size_t wide = LongestLine(Shell(absl::StrCat("COLUMNS=110 quirectl ", command, " --help")).output);
    EXPECT_LE(wide, 110u) << command;
    EXPECT_GT(wide, 80u) << command;
  }
}

}  // namespace
}  // namespace quire
