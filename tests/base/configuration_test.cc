// SPDX-License-Identifier: Apache-2.0

// Tests flags from the command line, the environment and a file (base/configuration.h and base/config_file.h).

#include "base/configuration.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/config_file.h"
#include "base/nearest_flag.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Options {
  int max_step_ms = 100;
  bool be_loud = false;
  double share = 0.5;
  absl::Duration patience = absl::Seconds(3);
  std::string greeting = "hello";
  std::vector<std::string> names = {"a", "b"};
};

Settings Declare(Options* options) {
  Settings settings{"quire-shout", "shouts.", "[flags]"};
  settings.Group("What:");
  settings.Add("max_step_ms", &options->max_step_ms, {0, 1000}, "How long.");
  settings.Add("be_loud", &options->be_loud, "Whether to shout.");
  settings.Add("share", &options->share, {0, 1, "in [0, 1)", /*has_min=*/true, /*has_max=*/false}, "A share.");
  settings.Add("patience", &options->patience, TimeRange::kFromZero, "How long to wait.");
  settings.Add("greeting", &options->greeting, "What to say.");
  settings.AddList("names", &options->names, "To whom.");
  AddConfigurationFlags(&settings);
  return settings;
}

class ConfigurationTest : public testing::Test {
 protected:
  ~ConfigurationTest() override { unlink(path_.c_str()); }

  // Uses a file with the contents `yaml`, unless it is null.
  absl::StatusOr<CommandLine<Options>> Read(const char* yaml, const std::vector<const char*>& arguments = {},
                                            std::vector<const char*> environment = {}) {
    const std::string config = absl::StrCat("QUIRE_SHOUT_CONFIG=", path_);
    if (yaml != nullptr) {
      std::ofstream(path_, std::ios::binary) << yaml;
      environment.push_back(config.c_str());
    }
    CommandLine<Options> line;
    const auto finish = [&line] {
      return line.options.names.empty() ? InvalidArgument("--names is empty, --greeting is for nobody")
                                        : absl::OkStatus();
    };
    QUIRE_ASSIGN_OR_RETURN(line.text, ReadConfiguration(Declare(&line.options), arguments, environment, finish));
    return line;
  }

  // In messages, the path of the file is replaced by "FILE".
  std::string Shown(const std::string& text) { return absl::StrReplaceAll(text, {{path_, "FILE"}}); }

  std::string Error(const char* yaml, const std::vector<const char*>& arguments = {},
                    std::vector<const char*> environment = {}) {
    const absl::Status status = Read(yaml, arguments, std::move(environment)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << yaml;
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << status;
    return Shown(std::string(status.message()));
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "/quire_configuration_test.", getpid(), ".yaml");
};

TEST_F(ConfigurationTest, TheCommandLineGoesBeforeTheEnvironmentBeforeTheFileBeforeTheDefault) {
  const char* yaml = "max_step_ms: 1\nshare: 0.1\ngreeting: file\n";
  const auto line = Read(yaml, {"--max-step-ms=3"}, {"QUIRE_SHOUT_MAX_STEP_MS=2", "QUIRE_SHOUT_SHARE=0.2"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.max_step_ms, 3);
  EXPECT_EQ(line->options.share, 0.2);
  EXPECT_EQ(line->options.greeting, "file");
  EXPECT_EQ(line->options.patience, absl::Seconds(3));
}

TEST_F(ConfigurationTest, EmptyConfigFlagIgnoresTheFileOfTheEnvironment) {
  const auto line = Read("max_step_ms: 1\nnonsense: 1\n", {"--config="});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.max_step_ms, Read(nullptr)->options.max_step_ms);
}

TEST_F(ConfigurationTest, AFileHasTextsNumbersAndListsInAnyYamlForm) {
  const auto line = Read(
      "---  # One document.\n"
      "max-step-ms: 7\n"
      "\"be_loud\": true\n"
      "patience: 500ms\n"
      "greeting: 'it''s \\'  # The comment.\n"
      "names:\n"
      "- x\n"
      "- 'y z'\n");
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.max_step_ms, 7);
  EXPECT_TRUE(line->options.be_loud);
  EXPECT_EQ(line->options.patience, absl::Milliseconds(500));
  EXPECT_EQ(line->options.greeting, "it's \\");
  EXPECT_THAT(line->options.names, ElementsAre("x", "y z"));
  EXPECT_THAT(Read("names: [x]")->options.names, ElementsAre("x"));
  EXPECT_THAT(Read("names: x,y")->options.names, ElementsAre("x", "y"));
  EXPECT_EQ(Error("names: []"), "--names is empty, --greeting is for nobody (--names is from FILE:1)");
  EXPECT_EQ(Read("{\"names\": [\"x\"], \"share\": 0.25}")->options.share, 0.25) << "JSON is YAML";
  EXPECT_EQ(Read("\xEF\xBB\xBFgreeting: \"a \\\"b\\\"\"\r\n")->options.greeting, "a \"b\"");
  EXPECT_THAT(Read("greeting: !!str &it  a b # c\r\nnames: [*it]")->options.names, ElementsAre("a b"));
  EXPECT_THAT(Read("names: [\n  x, 'y',\n  z\n]")->options.names, ElementsAre("x", "y", "z"));
  EXPECT_THAT(Read("# Nothing.\n")->options.names, ElementsAre("a", "b"));
  EXPECT_THAT(Read("")->options.names, ElementsAre("a", "b"));
}

TEST_F(ConfigurationTest, WhatIsWrongInAFileIsRefusedWithKeyValueLimitFileAndLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"be_loud: true\n\nmax_step_mss: 1\n", "FILE:3: unknown key max_step_mss; did you mean max_step_ms?"},
      {"max-stepms: 1", "FILE:1: unknown key max-stepms; did you mean max_step_ms?"},
      {"zebra: 1", "FILE:1: unknown key zebra; see --help"},
      {"config: x", "FILE:1: unknown key config; see --help"},
      {"check_config: true", "FILE:1: unknown key check_config; see --help"},
      {"share: 1\nmax_step_ms: soon", "FILE:2: max_step_ms is 'soon', it must be a whole number"},
      {"max_step_ms: 1.5", "FILE:1: max_step_ms is '1.5', it must be a whole number"},
      {"max_step_ms: 99999999999", "FILE:1: max_step_ms is '99999999999', it must be a whole number"},
      {"be_loud: on", "FILE:1: be_loud is 'on', it must be true or false"},
      {"share: half", "FILE:1: share is 'half', it must be a number"},
      {"patience: 30", "FILE:1: patience is '30', it must be a duration such as 500ms, 30s, 10m or 1h30m"},
      {"\n\nmax_step_ms: -1", "--max-step-ms is -1, it must be 0 .. 1000 (--max-step-ms is from FILE:3)"},
      {"share: 1\nshare: 2\n", "FILE:2: share is given twice, first at FILE:1"},
      {"max_step_ms: 1\nmax-step-ms: 1\n", "FILE:2: max_step_ms is given twice, first at FILE:1"},
      {"greeting:\n", "FILE:1: greeting has no value; nothing is written \"\", or [] for a list"},
      {"greeting: ~", "FILE:1: greeting has no value; nothing is written \"\", or [] for a list"},
      {"greeting: [a]", "FILE:1: greeting is a list, it must be one value"},
      {"greeting:\n  a: b", "FILE:2: greeting is a map, it must be a value or a list"},
      {"names:\n- a\n- [b]", "FILE:3: item 2 of names is not a value"},
      {"names:\n- a\n- ", "FILE:3: item 2 of names is not a value"},
      {"names: [\"a,b\"]", "FILE:1: item 1 of names is 'a,b', it must be text without a comma"},
      {"names: [a, \"\"]", "FILE:1: item 2 of names is '', it must be text without a comma"},
      {"[a]: b", "FILE:1: a key must be a word"},
      {"- a", "FILE:1: it must be lines of key: value"},
      {"just words", "FILE:1: it must be lines of key: value"},
      {"share: 1\n---\nshare: 2\n", "FILE: it has 2 documents, it must be one"},
  };
  for (const auto& [yaml, error] : cases) EXPECT_EQ(Error(yaml), error) << yaml;
  EXPECT_THAT(Error("a: 'b"), HasSubstr("FILE:1: it is not YAML: "));
  EXPECT_THAT(Error("a: b\n\tc: d"), HasSubstr("FILE:2: it is not YAML: "));
  EXPECT_THAT(Error("a: *nobody"), HasSubstr("FILE:1: it is not YAML: "));
  EXPECT_THAT(Error(std::string(100'000, '[').c_str()), HasSubstr("it is not YAML: "));
}

TEST_F(ConfigurationTest, AValueOfSeveralLinesAndAQuoteThatIsNotClosedAreRefused) {
  const std::string open = "greeting has a quote that is not closed in the same line";
  EXPECT_EQ(Error("greeting: \"hello\nshare: 1\nmax_step_ms: 4\n"), "FILE:1: " + open);
  EXPECT_EQ(Error("share: 1\ngreeting: 'it''s\nmax_step_ms: 4\n"), "FILE:2: " + open);
  EXPECT_EQ(Error("greeting: \"a\\\"\nshare: \""), "FILE:1: " + open);
  EXPECT_EQ(Error("greeting: \"a\nb\""), "FILE:1: " + open);
  EXPECT_EQ(Error("names:\n- a\n- 'b\nshare: 1\n"), "FILE:3: names has a quote that is not closed in the same line");
  const std::string several = "greeting has a value of more than one line, it must be one line";
  EXPECT_EQ(Error("greeting: |\n  two\n  lines\n"), "FILE:1: " + several);
  EXPECT_EQ(Error("greeting: >-\n  >\n"), "FILE:1: " + several);
  EXPECT_EQ(Error("greeting: a\n  share: 1\n").find("FILE:2: it is not YAML: "), 0u);
  EXPECT_EQ(Error("greeting: a\n  b\nshare: 1\n"), "FILE:1: " + several);
  EXPECT_EQ(ParseConfig("FILE", std::string("share: \0", 8)).status().message(), "FILE: it is not text in UTF-8");
}

TEST_F(ConfigurationTest, AFileThatIsMissingOrTooLongIsRefused) {
  EXPECT_EQ(Error(nullptr, {"--config=/nonexistent"}), "/nonexistent: it cannot be read: No such file or directory");
  EXPECT_THAT(Error(nullptr, {"--config=/"}), HasSubstr("/: it cannot be read: "));
  EXPECT_EQ(Error(std::string(kMaxConfigBytes + 1, '\n').c_str()), "FILE: it has more than 1048576 bytes");
}

TEST_F(ConfigurationTest, AVariableWithThePrefixIsAFlagOrAnError) {
  EXPECT_EQ(Error(nullptr, {}, {"QUIRE_SHOUT_MAX_STEP_MS=x"}),
            "QUIRE_SHOUT_MAX_STEP_MS is 'x', it must be a whole number");
  EXPECT_EQ(Error(nullptr, {}, {"QUIRE_SHOUT_MAX_STEP_MS="}),
            "QUIRE_SHOUT_MAX_STEP_MS is '', it must be a whole number");
  EXPECT_EQ(Error(nullptr, {}, {"QUIRE_SHOUT_MAX_STEP_MS=-1"}),
            "--max-step-ms is -1, it must be 0 .. 1000 (--max-step-ms is from environment QUIRE_SHOUT_MAX_STEP_MS)");
  EXPECT_EQ(Error(nullptr, {}, {"QUIRE_SHOUT_MAX_STEPMS=1"}),
            "the environment has QUIRE_SHOUT_MAX_STEPMS, which is no flag; did you mean QUIRE_SHOUT_MAX_STEP_MS?");
  EXPECT_EQ(Error(nullptr, {}, {"QUIRE_SHOUT_CHECK_CONFIG=1"}),
            "the environment has QUIRE_SHOUT_CHECK_CONFIG, which is no flag; see --help");
  EXPECT_EQ(Error(nullptr, {}, {"QUIRE_SHOUT_share=1"}),
            "the environment has QUIRE_SHOUT_share, which is no flag; see --help");
  const auto line = Read(nullptr, {}, {"QUIRE_SHOUT_GREETING=a=b", "QUIRE_OTHER_SHARE=x", "SHARE=x", "QUIRE_SHOUT=1"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.greeting, "a=b");
}

TEST_F(ConfigurationTest, VariablesThatKubernetesMakesForServicesArePassedOver) {
  const auto line = Read(
      nullptr, {},
      {"QUIRE_SHOUT_PORT=tcp://10.0.0.1:50051", "QUIRE_SHOUT_SERVICE_HOST=10.0.0.1", "QUIRE_SHOUT_SERVICE_PORT=50051",
       "QUIRE_SHOUT_SERVICE_PORT_GRPC=50051", "QUIRE_SHOUT_PORT_50051_TCP=tcp://10.0.0.1:50051",
       "QUIRE_SHOUT_PORT_50051_TCP_PROTO=tcp", "QUIRE_SHOUT_PORT_50051_TCP_PORT=50051",
       "QUIRE_SHOUT_PORT_50051_TCP_ADDR=10.0.0.1", "QUIRE_SHOUT_SHARE_PORT_53_UDP=udp://10.0.0.1:53"});
  EXPECT_TRUE(line.ok()) << line.status();
  for (const char* other : {"QUIRE_SHOUT_PORT_TCP", "QUIRE_SHOUT_PORT_1_TCP_X", "QUIRE_SHOUT_PORTS", "QUIRE_SHOUT_"}) {
    EXPECT_FALSE(IsServiceLink(other)) << other;
  }
}

TEST_F(ConfigurationTest, AnErrorOfTheCommandLineComesFirst) {
  EXPECT_EQ(Error("zebra: 1", {"--max-step=1"}, {"QUIRE_SHOUT_ZEBRA=1"}),
            "there is no flag --max-step; did you mean --max-step-ms?");
  EXPECT_EQ(Read("zebra: 1", {"--max-step=1", "--version"})->text.value().substr(0, 12), "quire-shout ");
}

TEST_F(ConfigurationTest, ThePrintHasEveryFlagWithItsSource) {
  const auto line = Read("greeting: \"a \\\"b\\\" \\\\ #\\n\\u00e9\"\nshare: 0.25\n",
                         {"--be-loud", "--print-effective-config"}, {"QUIRE_SHOUT_NAMES=x,y"});
  ASSERT_TRUE(line.ok()) << line.status();
  const std::string text = Shown(line->text.value());
  EXPECT_EQ(text.substr(text.find('\n') + 1),
            "\n"
            "# What:\n"
            "max_step_ms: 100  # default\n"
            "be_loud: true  # flag\n"
            "share: 0.25  # FILE:2\n"
            "patience: \"3s\"  # default\n"
            "greeting: \"a \\\"b\\\" \\\\ #\\n\xC3\xA9\"  # FILE:1\n"
            "names: [\"x\", \"y\"]  # environment QUIRE_SHOUT_NAMES\n");
  const auto again = Read(line->text->c_str());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->options.greeting, line->options.greeting);
  EXPECT_THAT(again->options.names, ElementsAre("x", "y"));
  EXPECT_TRUE(again->options.be_loud);
}

TEST_F(ConfigurationTest, AnyTextIsReadBackFromThePrint) {
  for (const std::string value : {"", " ", "true", "~", "- a", "a: b", "\t", "\x01\x7F", "'\"", "a\r\nb",
                                  "\xF0\x9F\x92\xA1", "#", "%", "\\n", "\xC2\x85", "\xEF\xBB\xBF"}) {
    const auto entries =
        ParseConfig("FILE", absl::StrCat(ConfigLine("a", value, true, "why"),
                                         ConfigLine("b", std::vector<std::string>{value, "c"}, "why")));
    ASSERT_TRUE(entries.ok()) << value << ": " << entries.status();
    EXPECT_THAT((*entries)[0].values, ElementsAre(value));
    EXPECT_THAT((*entries)[1].values, ElementsAre(value, "c"));
  }
}

TEST_F(ConfigurationTest, TheCheckSaysThatAllIsValidOrWhatIsNot) {
  EXPECT_EQ(Read("share: 0.1", {"--check-config"})->text, "quire-shout: the configuration is valid\n");
  EXPECT_EQ(Error("max_step_ms: 1001", {"--check-config"}),
            "--max-step-ms is 1001, it must be 0 .. 1000 (--max-step-ms is from FILE:1)");
}

TEST_F(ConfigurationTest, AValueOutOfItsRangeIsRefused) {
  EXPECT_EQ(Error(nullptr, {"--share=1"}), "--share is 1, it must be in [0, 1)");
  EXPECT_EQ(Error(nullptr, {"--share=nan"}), "--share is nan, it must be in [0, 1)");
  EXPECT_EQ(Error(nullptr, {"--patience=-1s"}), "--patience is -1s, it must be 0 .. 24h");
  EXPECT_EQ(Error(nullptr, {"--patience=25h"}), "--patience is 25h, it must be 0 .. 24h");
  EXPECT_EQ(Error(nullptr, {"--max-step-ms=1001", "--share=2"}), "--max-step-ms is 1001, it must be 0 .. 1000")
      << "the first one in the table";
  EXPECT_TRUE(Read(nullptr, {"--max-step-ms=1001", "--max-step-ms=0", "--share=0", "--patience=0"}).ok())
      << "only the last value counts";
}

TEST(NearestNameTest, IsTheOneWithTheFewestChanges) {
  const std::vector<std::string> names = {"max_step_ms", "max_steps", "policy", "listen"};
  EXPECT_EQ(NearestName("max_step_m", names), "max_step_ms");
  EXPECT_EQ(NearestName("polciy", names), "policy") << "two letters swapped are one change";
  EXPECT_EQ(NearestName("Listen", names), "listen");
  EXPECT_EQ(NearestName("list", names), "") << "two changes in four letters";
  EXPECT_EQ(NearestName("", names), "");
  EXPECT_EQ(NearestName(std::string(1000, 'x'), names), "");
}

TEST(NearestFlagTest, IsTheOneForTheSameThingOfAnotherProgram) {
  const std::vector<std::string> quirectl = {"--tls-ca", "--endpoint", "--tls-name", "--rpc-timeout"};
  EXPECT_EQ(NearestFlag("--manager", quirectl), "--endpoint");
  EXPECT_EQ(NearestFlag("--manager_tls_ca", quirectl), "--tls-ca");
  EXPECT_EQ(NearestFlag("--manager-name", quirectl), "--tls-name");
  EXPECT_EQ(NearestFlag("--call-timeout", quirectl), "--rpc-timeout");
  EXPECT_EQ(NearestFlag("--endpiont", quirectl), "--endpoint");
  EXPECT_EQ(NearestFlag("--workers", quirectl), "");
  const std::vector<std::string> gateway = {"MANAGER", "LISTEN", "MANAGER_TLS_CA", "MANAGER_NAME"};
  EXPECT_EQ(NearestFlag("ENDPOINT", gateway), "MANAGER");
  EXPECT_EQ(NearestFlag("PORT", gateway), "LISTEN") << "not the port of the manager";
  EXPECT_EQ(NearestFlag("MANAGER_TLS_NAME", gateway), "MANAGER_NAME");
}

TEST(ConfigSectionsTest, NamesHaveKeysAndValues) {
  const auto sections = ParseConfigSections("FILE", "b: {x: 1, y: [2, 3]}\na:\n  x: one\n");
  ASSERT_TRUE(sections.ok()) << sections.status();
  ASSERT_EQ(sections->size(), 2u);
  EXPECT_EQ((*sections)[0].name, "b");
  EXPECT_THAT((*sections)[0].entries[1].values, ElementsAre("2", "3"));
  EXPECT_EQ((*sections)[1].name_at, "FILE:2");
  EXPECT_EQ((*sections)[1].entries[0].value_at, "FILE:3");
  EXPECT_TRUE(ParseConfigSections("FILE", "")->empty());
  EXPECT_EQ(ParseConfigSections("FILE", "a: 1").status().message(),
            "FILE:1: 'a' must be followed by lines of key: value");
}

}  // namespace
}  // namespace quire
