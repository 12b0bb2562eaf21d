// SPDX-License-Identifier: Apache-2.0

// `quirectl doctor` and `quirectl completion` with the real programs.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/installation.h"
#include "tests/e2e/quirectl.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::Not;

class QuirectlDoctorTest : public QuirectlTest {};

TEST_F(QuirectlDoctorTest, AHealthyPairIsOkFromAddressToToken) {
  const Ended run = Quirectl({"doctor"});
  EXPECT_EQ(run.exit_code, 0) << run.output;
  for (const char* line :
       {"ok    address ", "ok    connection ", "ok    TLS         not asked for", "ok    readiness ",
        "ok    inference ", "ok    version ", "ok    worker unix:", "ok    generation  1 token after "}) {
    EXPECT_THAT(run.output, HasSubstr(line));
  }
  EXPECT_THAT(run.output, Not(HasSubstr("\033"))) << "no terminal, no colours";
  const Ended json = Quirectl({"-o", "json", "doctor", "--no-generate"});
  const nlohmann::json document = nlohmann::json::parse(json.output, nullptr, /*allow_exceptions=*/false);
  EXPECT_GT(document["checks"].size(), 6u);
  EXPECT_EQ(document["checks"][0]["result"], "ok");
  EXPECT_THAT(json.output, Not(HasSubstr("generation")));
}

TEST_F(QuirectlDoctorTest, WhatFailsSaysWhatToDo) {
  const Ended nobody = quire::Quirectl("unix:/nonexistent", {"doctor"});
  EXPECT_EQ(nobody.exit_code, 3);
  EXPECT_THAT(nobody.output, HasSubstr("fail  address"));
  EXPECT_THAT(nobody.output, HasSubstr("--endpoint or $QUIRE_ENDPOINT name another place"));
  const Ended worker = quire::Quirectl(cluster_->worker_endpoint(0), {"doctor"});
  EXPECT_EQ(worker.exit_code, 1);
  EXPECT_THAT(worker.output, HasSubstr("what answers is no manager"));
  const Ended metrics = Quirectl({"doctor", "--metrics", "unix:/nonexistent"});
  EXPECT_EQ(metrics.exit_code, 1);
  EXPECT_THAT(metrics.output, HasSubstr("fail  metrics"));
  EXPECT_EQ(Quirectl({"doctor", "--metrics", "nowhere"}).exit_code, 2);
}

TEST(TlsDoctorTest, CertificatesAreTold) {
  const Installation installation;
  const Cluster cluster(installation.MutualTls());
  std::vector<std::string> arguments = Installation::Flags(installation.Of("quire-admin"));
  arguments.insert(arguments.end(), {"--tls-name=quire-manager", "doctor"});
  const Ended with = Quirectl(cluster.endpoint(), arguments);
  EXPECT_EQ(with.exit_code, 0) << with.output;
  EXPECT_THAT(with.output, HasSubstr("TLS         the manager's certificate ends "));
  EXPECT_THAT(with.output, HasSubstr("TLS         our own certificate ends "));
  // In TLS 1.3 the handshake of a client without a certificate ends before the manager refuses it.
  const Ended anonymous = Quirectl(cluster.endpoint(), {"--tls-ca=" + installation.Of("quire-admin").authority,
                                                        "--tls-name=quire-manager", "doctor"});
  EXPECT_EQ(anonymous.exit_code, 1) << anonymous.output;
  EXPECT_THAT(anonymous.output, HasSubstr("fail  TLS         the server refuses us: "));
  EXPECT_THAT(anonymous.output, HasSubstr("the manager has --tls-ca: show a certificate"));
  EXPECT_THAT(anonymous.output, Not(HasSubstr("ok    TLS")));
  const Ended plain = Quirectl(cluster.endpoint(), {"doctor"});
  EXPECT_EQ(plain.exit_code, 1) << plain.output;
  EXPECT_THAT(plain.output, HasSubstr("fail  TLS         the manager seems to speak TLS\n"));
  EXPECT_THAT(plain.output, testing::EndsWith("give --tls-ca, the authority of the manager's certificate\n"));
  arguments[arguments.size() - 2] = "--tls-name=somebody-else";
  const Ended other = Quirectl(cluster.endpoint(), arguments);
  EXPECT_EQ(other.exit_code, 1) << other.output;
  EXPECT_THAT(other.output, HasSubstr("fail  TLS"));
}

// Runs a line of sh that has the completion script for `shell` in $file, and returns what it prints. Returns "missing"
// if the shell is not installed.
std::string WithScript(const std::string& shell, const std::string& line) {
  const Ended run =
      Shell("unix:/unused",
            absl::StrCat("command -v ", shell, " > /dev/null || { echo missing; exit; }\n",
                         "file=$(mktemp); quirectl completion ", shell, " > $file\n", line, " 2>&1; rm $file"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  return run.output;
}

TEST(CompletionTest, BashCompletesCommandsOptionsAndValues) {
  const auto complete = [](const std::string& words) {
    return WithScript("bash",
                      absl::StrCat("bash -c 'source $0; COMP_WORDS=(quirectl ", words,
                                   "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _quirectl; echo ${COMPREPLY[*]}' $file"));
  };
  EXPECT_EQ(complete("ben"), "bench\n");
  EXPECT_EQ(complete("-o js"), "json\n");
  EXPECT_EQ(complete("-o json gen"), "generate\n");
  EXPECT_EQ(complete("generate --early-stopping w"), "when-full\n");
  EXPECT_EQ(complete("bench --shared"), "--shared-prefix-tokens\n");
  EXPECT_EQ(complete("bench --tls-na"), "--tls-name\n");
  EXPECT_EQ(complete("completion z"), "zsh\n");
  EXPECT_EQ(complete("bench --trace /pro"), "/proc\n");
}

TEST(CompletionTest, TheOtherShellsTakeTheirScripts) {
  const std::string zsh = WithScript("zsh", "zsh -n $file");
  if (zsh == "missing\n") {
    GTEST_LOG_(INFO) << "no zsh: its script was not read";
  } else {
    EXPECT_EQ(zsh, "");
  }
  const std::string fish = WithScript("fish", "fish -c \"source $file; complete -C 'quirectl ben'\"");
  if (fish == "missing\n") GTEST_SKIP() << "no fish: its script was not read";
  EXPECT_THAT(fish, testing::StartsWith("bench\t"));
}

}  // namespace
}  // namespace quire
