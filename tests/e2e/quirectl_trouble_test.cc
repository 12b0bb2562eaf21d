// SPDX-License-Identifier: Apache-2.0

// The errors and exit codes of quirectl.

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/quirectl.h"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class QuirectlTroubleTest : public QuirectlTest {};

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST_F(QuirectlTroubleTest, ARefusalIsSaidOnceAndExitsWithFour) {
  const Ended run = Quirectl({"generate", "hello", "-t", "-1"});
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_EQ(run.output, "quirectl: invalid argument: --temperature is -1, must be at least 0 and finite\n");
}

TEST_F(QuirectlTroubleTest, ARefusalNamesTheOptionsOfTheUser) {
  EXPECT_THAT(Quirectl({"generate", "hello", "--beam", "4", "--return", "5"}).output, HasSubstr("--return is 5, "));
  EXPECT_THAT(Quirectl({"generate", "hello", "--samples", "1000"}).output, HasSubstr("--samples is 1000, "));
  EXPECT_THAT(Quirectl({"generate", "--prompt-ids", "1,99999"}).output, HasSubstr("--prompt-ids[1] is 99999, "));
  EXPECT_THAT(Quirectl({"generate", "hello", "--top-p=2", "--bad-word", ""}).output,
              ContainsRegex("--top-p is 2, .*\n  --bad-word\\[0\\] is \"\", which has no token; "));
  EXPECT_THAT(Quirectl({"generate", "hello", "--min-tokens=5", "-n", "3"}).output,
              HasSubstr("--min-tokens is 5, --max-tokens is 3"));
  EXPECT_THAT(Quirectl({"generate", "hello", "--regex", "a", "--ignore-eos"}).output,
              HasSubstr("--ignore-eos is true, it cannot be combined with --regex"));
  EXPECT_THAT(Shell("echo hello | quirectl chat -t -1").output, HasSubstr("--temperature is -1, "));
}

TEST_F(QuirectlTroubleTest, WrongUsageExitsWithTwoAndNamesTheArgument) {
  struct Wrong {
    std::vector<std::string> arguments;
    const char* message;
  };
  for (const Wrong& wrong : {
           Wrong{{"generate", "hello", "--no-such-flag"}, "unexpected argument \"--no-such-flag\""},
           Wrong{{"generate", "big", "red", "dog"},
                 "put a text of several words in quotes: quirectl generate \"big red"},
           Wrong{{"generate", "--big dog"}, "put -- before a text that begins with a dash"},
           Wrong{{"generate", "hello", "--logit-bias", "seven"}, "--logit-bias is \"seven\""},
           Wrong{{"generate", "hello", "-n", "few"}, "--max-tokens is few, it must be a whole number, 0 .. 4294967295"},
           Wrong{{"health", "--wait=soon"}, "--wait is soon, it must be 1ms .. 24h, such as 500ms, 30s or 10m"},
           Wrong{{"generate", "hello", "--regex", ""}, "--regex is empty"},
           Wrong{{"generate", "hello", "--json-schema", ""}, "--json-schema is empty"},
           Wrong{{"generate", "hello", "--grammar", ""}, "--grammar is empty"},
           Wrong{{"generate", "hello", "--grammar", "@/dev/null"},
                 "--grammar names the file /dev/null, which is empty"},
           Wrong{{"generate", "hello", "--grammar=", "-n", "3"}, "--grammar= has no value\n"},
           Wrong{{"generate", "hello", "--bad-word=", "--request-id=x"}, "--bad-word= has no value\n"},
           Wrong{{"generate", "hello", "--seed=-1"},
                 "--seed is -1, it must be a whole number, 0 .. 18446744073709551615"},
           Wrong{{"generate", "hello", "-t", "warm"}, "--temperature is warm, it must be a number"},
           Wrong{{"top", "-n", "-1"}, "--frames is -1, it must be a whole number, 0 .. 1000000"},
           Wrong{{"--rpc-timeout", "0", "status"},
                 "--rpc-timeout is 0, it must be 0.001 .. 1000000 seconds, or a time such as 500ms, 30s or 10m\n"},
           Wrong{{"generate", "x", "--timeout", "1000h"},
                 "--timeout is 1000h, it must be 0.001 .. 1000000 seconds, or"},
           Wrong{{"generate", "x", "--timeout", "5x"}, "--timeout is 5x, it must be 0.001 .. 1000000 seconds, or"},
           Wrong{{"pin", "x", "--ttl", "1500ms"}, "--ttl is 1500ms, it must be a whole number, 1 .. 86400 seconds, or"},
           Wrong{{"generate", "ab\xFF"}, "prompt: is not valid UTF-8: byte 2 of 3 is 0xff"},
           Wrong{{"generate", "ab", "--stop", "\xFF"}, "--stop[0] is not valid UTF-8: byte 0 of 1 is 0xff"},
           Wrong{{"tokenize", "ab\xFF"}, "text: is not valid UTF-8: byte 2 of 3 is 0xff"},
           Wrong{{"detokenize", "1", "two"}, "ids: \"two\" is not a token id"},
           Wrong{{"abort", ""}, "request_id is empty"},
           Wrong{{"-o", "yaml", "status"}, "--output: yaml not in {text,table,json}"},
           Wrong{{"no-such-command"}, "there is no command \"no-such-command\""},
           Wrong{{"stauts"}, "there is no command \"stauts\"; did you mean status?"},
           Wrong{{"generate", "hello", "--max-tokns=5"}, "\"--max-tokns=5\"; did you mean --max-tokens?"},
           Wrong{{"status", "--endpiont", "host:1"}, "\"--endpiont\"; did you mean --endpoint?"},
           Wrong{{"status", "--manager=host:1"}, "unexpected argument \"--manager=host:1\"; did you mean --endpoint?"},
           Wrong{{"--manager=host:1", "status"}, "unexpected argument \"--manager=host:1\"; did you mean --endpoint?"},
           Wrong{{"--manager", "host:1", "status"}, "unexpected argument \"--manager\"; did you mean --endpoint?"},
           Wrong{{"--manager-tls-ca=ca.pem"},
                 "unexpected argument \"--manager-tls-ca=ca.pem\"; did you mean --tls-ca?"},
           Wrong{{"bench", "--random-input-len", "5"}, "that option of `vllm bench serve` is --input-tokens N here"},
           Wrong{{"bench", "--max-concurrency", "3"}, "is --concurrency N, or with --rate --max-in-flight N here"},
           Wrong{{"--tls-name", "quire-manager", "status"}, "--tls-ca is missing: --tls-name means nothing without it"},
           Wrong{{"--rpc-timeout", "0", "status"}, "and `quirectl --help` the options of all commands"},
           Wrong{{"--token", "sec\nret", "status"}, "the token has a character that a header cannot carry"},
           Wrong{{}, "a subcommand is required"},
       }) {
    const Ended run = Quirectl(wrong.arguments);
    EXPECT_EQ(run.exit_code, 2) << wrong.message;
    EXPECT_THAT(run.output, StartsWith("quirectl: "));
    EXPECT_THAT(run.output, HasSubstr(wrong.message));
    EXPECT_EQ(CountOf(run.output, "libprotobuf"), 0) << run.output;
  }
}

TEST_F(QuirectlTroubleTest, PipedInputThatNoArgumentReadsIsAnError) {
  const Ended pipe = Shell("echo Once | quirectl generate -n 1");
  EXPECT_EQ(pipe.exit_code, 2);
  EXPECT_THAT(pipe.output, HasSubstr("there is no prompt, and standard input is a pipe or a file"));
  EXPECT_EQ(Shell("echo Once | quirectl generate '' -n 1").exit_code, 0) << "an empty prompt is a prompt";
  EXPECT_EQ(Shell("echo Once | quirectl generate --prompt-ids 1 -n 1").exit_code, 0);
  EXPECT_EQ(Shell("quirectl generate -n 1 < /dev/null").exit_code, 0) << "nothing was piped";
}

TEST_F(QuirectlTroubleTest, AnEndpointOfTheWrongFormExitsWithTwoInOneLine) {
  for (const char* endpoint : {"", "127.0.0.1", "http://127.0.0.1:50051", "127.0.0.1:http", "unix:"}) {
    const Ended run = quire::Quirectl(endpoint, {"status"});
    EXPECT_EQ(run.exit_code, 2) << endpoint;
    EXPECT_THAT(run.output, StartsWith("quirectl: the endpoint "));
    EXPECT_THAT(run.output, HasSubstr("expected host:port or unix:path\n"));
    EXPECT_EQ(CountOf(run.output, "\n"), 1) << run.output;
  }
}

TEST_F(QuirectlTroubleTest, AWorkersAddressIsRecognised) {
  const std::string worker = absl::StrReplaceAll(cluster_->endpoint(), {{"manager.sock", "worker0.sock"}});
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{{"status"}, {"generate", "x"}}) {
    const Ended run = quire::Quirectl(worker, command);
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.output, HasSubstr("is not a manager; is it a worker?"));
    EXPECT_EQ(CountOf(run.output, "\n"), 1) << run.output;
  }
}

TEST_F(QuirectlTroubleTest, NobodyThereExitsWithThreeAndSaysWhere) {
  const Ended run = quire::Quirectl("unix:/tmp/quire-no-such-socket", {"status"});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.output, HasSubstr("no manager answers at unix:/tmp/quire-no-such-socket: there is no socket "
                                    "/tmp/quire-no-such-socket"));
}

TEST_F(QuirectlTroubleTest, AnHttpServerIsRecognised) {
  Process gateway({Binary("quire-openai"), "--listen=127.0.0.1:0", "--manager=" + cluster_->endpoint()});
  const std::string line = gateway.WaitForLine("listening on ");
  const std::string address = line.substr(line.find("127."));
  const std::string text = "an HTTP server answers at " + address +
                           ", such as quire-openai or a metrics port; the manager's port is 50051 by default";
  const Ended status = quire::Quirectl(address, {"status"});
  EXPECT_EQ(status.exit_code, 3);
  EXPECT_EQ(status.output, "quirectl: " + text + "\n");
  const Ended doctor = quire::Quirectl(address, {"doctor"});
  EXPECT_EQ(doctor.exit_code, 1);
  EXPECT_THAT(doctor.output, HasSubstr("fail  protocol    " + text));
  EXPECT_EQ(CountOf(doctor.output, "fail "), 1) << doctor.output;
}

TEST(QuirectlNoWorkerTest, HealthWaitsUntilItServesOrTheTimeIsOver) {
  Cluster cluster({.model = BundledModel()});
  cluster.worker(0).Signal(SIGKILL);
  cluster.worker(0).Wait();
  while (Quirectl(cluster.endpoint(), {"health", "readiness"}).exit_code == 0) continue;
  const Ended over = Quirectl(cluster.endpoint(), {"health", "readiness", "--wait=200ms"});
  EXPECT_EQ(over.exit_code, 3);
  EXPECT_THAT(over.output, HasSubstr("quirectl: it does not serve after 200ms; `quirectl status` shows the workers\n"));
  EXPECT_EQ(Quirectl("unix:/nonexistent", {"health", "--wait=200ms"}).exit_code, 3);
  EXPECT_EQ(Quirectl(cluster.endpoint(), {"health", "no-such-service", "--wait=1h"}).exit_code, 4);
  // A manager that does not answer costs no more than the wait either.
  cluster.manager().Signal(SIGSTOP);
  const absl::Time begin = absl::Now();
  EXPECT_EQ(Quirectl(cluster.endpoint(), {"health", "readiness", "--wait=300ms"}).exit_code, 3);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(8)) << "a call alone may take 10 s";
  // At first not even the manager is there.
  cluster.manager().Signal(SIGKILL);
  cluster.manager().Wait();
  Process wait({Binary("quirectl"), "--endpoint", cluster.endpoint(), "health", "readiness", "--wait=2m"});
  cluster.RestartManager();
  cluster.RestartWorker(0);
  EXPECT_EQ(wait.Wait(), 0);
  EXPECT_EQ(wait.Output(), "SERVING\n");
}

TEST(QuirectlNoWorkerTest, HealthSaysWhyTheOnlyWorkerIsRefused) {
  const TestDirectory model;
  model.CopyFrom(BundledModel(), "config.json");
  model.Write("tokenizer.json", "{}");
  Cluster cluster({.model = model.path(),
                   .worker_flags = {"--device=simulated", "--simulated-step-times=0"},
                   .waits_for_workers = false});
  Process wait({Binary("quirectl"), "--endpoint", cluster.endpoint(), "health", "readiness", "--wait=10m"});
  const std::string line = wait.WaitForLine("tokenizer.json");
  EXPECT_THAT(line, StartsWith(absl::StrCat("quirectl: the worker ", cluster.worker_endpoint(0), " is refused: ")))
      << "nobody should wait ten minutes for this";
  wait.Signal(SIGTERM);
  wait.Wait();
  const Ended once = Quirectl(cluster.endpoint(), {"health", "readiness"});
  EXPECT_EQ(once.exit_code, 3);
  EXPECT_THAT(once.output, HasSubstr(line + "\n"));
  const Ended waited = Quirectl(cluster.endpoint(), {"health", "readiness", "--wait=2s"});
  EXPECT_EQ(CountOf(waited.output, "is refused"), 1) << waited.output;
  EXPECT_EQ(CountOf(Quirectl(cluster.endpoint(), {"health", "liveness"}).output, "is refused"), 0);
}

TEST(QuirectlNoWorkerTest, WhoWaitsForAWorkerHearsOfIt) {
  Cluster cluster({.model = BundledModel()});
  cluster.worker(0).Signal(SIGKILL);
  const Ended run = Quirectl(cluster.endpoint(), {"generate", "Once", "-n", "5", "--timeout", "0.5"});
  EXPECT_EQ(run.exit_code, 3);
  // The client notices the end of its time, or the manager does so a moment before.
  EXPECT_THAT(run.output, AnyOf(HasSubstr("or the request waited for a worker; `quirectl status` shows the workers"),
                                HasSubstr("the call's deadline passed before it could run")));
}

TEST_F(QuirectlTroubleTest, AFullDiskEndsTheCallAndExitsWithOne) {
  for (const char* line : {"quirectl generate Once -n 900 --ignore-eos > /dev/full", "quirectl status > /dev/full",
                           "quirectl generate Once -n 900 --ignore-eos -o json > /dev/full"}) {
    const Ended run = Shell(line);
    EXPECT_EQ(run.exit_code, 1) << line;
    EXPECT_EQ(run.output, "quirectl: cannot write to standard output: No space left on device\n") << line;
  }
  EXPECT_TRUE(cluster_->WaitUntilIdle());
}

TEST_F(QuirectlTroubleTest, AClosedPipeEndsTheRequestInSilence) {
  const Ended run = Shell(
      "{ quirectl generate Once -n 900 --ignore-eos --samples 8 --request-id pipe; echo rc=$? >&2; } | "
      "head -c 1 > /dev/null");
  EXPECT_EQ(run.output, "rc=141\n");
  EXPECT_EQ(Quirectl({"abort", "pipe"}).exit_code, 4) << "the request ends before quirectl does";
  EXPECT_TRUE(cluster_->WaitUntilIdle());
}

TEST_F(QuirectlTroubleTest, ControlCEndsTheCallInSilenceAndFreesItsBlocks) {
  Process process({Binary("quirectl"), "--endpoint", cluster_->endpoint(), "generate", "Once", "-o", "json",
                   "--max-tokens=900", "--ignore-eos"});
  ASSERT_NE(process.WaitForLine("text_delta"), "") << process.Output();
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 130);
  EXPECT_THAT(process.Output(), Not(HasSubstr("quirectl:")));
  EXPECT_THAT(process.Output(), Not(ContainsRegex("resume_token\":\"[^\"]")));
  EXPECT_TRUE(cluster_->WaitUntilIdle());
}

TEST_F(QuirectlTroubleTest, ATerminalThatClosesEndsTheRequest) {
  Process process({Binary("quirectl"), "--endpoint", cluster_->endpoint(), "generate", "Once", "-o", "json",
                   "--max-tokens=900", "--ignore-eos", "--samples=8", "--request-id=terminal"});
  ASSERT_NE(process.WaitForLine("text_delta"), "") << process.Output();
  process.Signal(SIGHUP);
  EXPECT_EQ(process.Wait(), 129);
  EXPECT_EQ(Quirectl({"abort", "terminal"}).exit_code, 4) << "the request ends before quirectl does";
  EXPECT_TRUE(cluster_->WaitUntilIdle());
}

TEST(QuirectlLostWorkerTest, WhatCouldNotBeAskedExitsWithThree) {
  Cluster cluster({.model = BundledModel()});
  EXPECT_EQ(Quirectl(cluster.endpoint(), {"audit"}).exit_code, 0);
  cluster.worker(0).Signal(SIGKILL);
  while (Quirectl(cluster.endpoint(), {"health", "readiness"}).exit_code == 0) continue;
  const Ended audit = Quirectl(cluster.endpoint(), {"audit"});
  EXPECT_EQ(audit.exit_code, 3);
  EXPECT_THAT(audit.output, HasSubstr("its rows were not compared: the worker is not connected"));
  EXPECT_EQ(Quirectl(cluster.endpoint(), {"blocks"}).exit_code, 3);
}

// The manager is killed while quirectl prints the text. The text stays, and one line follows it.
void LoseTheManager(const std::string& option) {
  Cluster cluster({.model = BundledModel()});
  Process process({Binary("quirectl"), "--endpoint", cluster.endpoint(), "generate", "Once\nupon", "--echo",
                   "--max-tokens=900", "--ignore-eos", option});
  ASSERT_NE(process.WaitForLine("Once"), "") << process.Output();
  cluster.manager().Signal(SIGKILL);
  EXPECT_EQ(process.Wait(), 5);
  EXPECT_THAT(process.Output(), StartsWith("Once\nupon"));
  EXPECT_THAT(process.Output(), HasSubstr("\nquirectl: the manager at " + cluster.endpoint() +
                                          " closed the connection before the answer was complete\n"));
  // Only a stream that resumes says that it tries.
  const bool resumes = option != "--no-resume";
  EXPECT_EQ(CountOf(process.Output(),
                    "quirectl: the connection to the manager was lost; trying for 30 s to resume (Ctrl-C stops)\n"),
            resumes);
  EXPECT_EQ(CountOf(process.Output(), "quirectl:"), 1 + resumes);
}

TEST(QuirectlLostManagerTest, WithoutResumingTheErrorComesAtOnce) {
  LoseTheManager("--no-resume");
}

TEST(QuirectlLostManagerTest, TheErrorSaysHowTheConnectionWasLost) {
  LoseTheManager("--timeout=4");
}

}  // namespace
}  // namespace quire
