// SPDX-License-Identifier: Apache-2.0

#include "launcher/serve_options.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flag_reference.h"

namespace quire {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<KnownFlag> FlagsOf(PartId part) {
  if (part == kWorker) return {{"model", false}, {"kv_bytes", false}, {"prefault", true}, {"log_level", false}};
  if (part == kManager) return {{"policy", false}, {"log_level", false}};
  return {{"manager", false}, {"listen", false}, {"unknown_fields", false}, {"log_level", false}};
}

absl::StatusOr<CommandLine<ServeOptions>> Parse(const std::vector<const char*>& arguments) {
  return ParseServeCommandLine(arguments, FlagsOf);
}

std::vector<std::string> Texts(const std::vector<const char*>& arguments, PartId part) {
  const absl::StatusOr<CommandLine<ServeOptions>> line = Parse(arguments);
  if (!line.ok()) return {std::string(line.status().message())};
  std::vector<std::string> texts;
  for (const PartFlag& flag : line->options.flags[part]) texts.push_back(flag.text);
  return texts;
}

std::string ErrorOf(const std::vector<const char*>& arguments) {
  return std::string(Parse(arguments).status().message());
}

// Makes a configuration file that lives as long as the test.
class ServeConfigTest : public testing::Test {
 protected:
  ~ServeConfigTest() override { std::remove(path_.c_str()); }

  const char* FileWith(const std::string& text) {
    std::ofstream(path_) << text;
    return path_.c_str();
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "/serve_", ::getpid(), ".yaml");
};

TEST(ServeOptionsTest, ModelAloneLeavesTheProgramsTheirDefaults) {
  const absl::StatusOr<CommandLine<ServeOptions>> line = Parse({"models/tales"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.model, "models/tales");
  EXPECT_THAT(line->options.flags, Each(IsEmpty()));
}

TEST(ServeOptionsTest, FlagsWithThePrefixOfAProgramGoToIt) {
  const std::vector<const char*> arguments = {"--worker.kv-bytes=4GiB", "m", "--manager.policy=fcfs",
                                              "--worker.prefault", "--gateway.unknown-fields=warn"};
  EXPECT_THAT(Texts(arguments, kWorker), ElementsAre("--kv-bytes=4GiB", "--prefault"));
  EXPECT_THAT(Texts(arguments, kManager), ElementsAre("--policy=fcfs"));
  EXPECT_THAT(Texts(arguments, kGateway), ElementsAre("--unknown-fields=warn"));
}

TEST(ServeOptionsTest, TheValueOfAFlagOfAProgramMayFollowASpace) {
  const std::vector<const char*> arguments = {"--worker.kv-bytes", "4GiB", "--worker.prefault",  "m",
                                              "--manager.policy",  "fcfs", "--worker.log_level", "debug"};
  EXPECT_THAT(Texts(arguments, kWorker), ElementsAre("--kv-bytes=4GiB", "--prefault", "--log_level=debug"));
  EXPECT_THAT(Texts(arguments, kManager), ElementsAre("--policy=fcfs"));
  EXPECT_EQ(Parse(arguments)->options.model, "m");
  EXPECT_EQ(ErrorOf({"m", "--worker.kv-bytes"}), "--worker.kv-bytes has no value");
  EXPECT_EQ(ErrorOf({"m", "--worker.kv-byte", "4GiB"}),
            "there is no flag --worker.kv-byte; did you mean --worker.kv-bytes?");
}

TEST(ServeOptionsTest, ErrorsOfProgramsNameFlagsAsTheyAreTyped) {
  const auto told = [](PartId part, const char* error, const std::vector<const char*>& arguments) {
    return WithServeFlags(part, error, FlagsOf(part), Parse(arguments)->options.flags[part]);
  };
  const char* const used = "--listen: cannot listen on 127.0.0.1:80: it is in use";
  EXPECT_EQ(told(kGateway, used, {"m"}), "--port: cannot listen on 127.0.0.1:80: it is in use");
  EXPECT_EQ(told(kGateway, used, {"m", "--port=80"}), "--port: cannot listen on 127.0.0.1:80: it is in use");
  EXPECT_EQ(told(kGateway, "--listen is bad", {"m", "--host=::1"}), "--host is bad");
  EXPECT_EQ(told(kGateway, "--listen is bad", {"m", "--host=x", "--port=1"}), "--host with --port is bad");
  EXPECT_EQ(told(kGateway, "--listen is bad", {"m", "--gateway.listen=x"}), "--gateway.listen is bad");
  EXPECT_EQ(told(kWorker, "--quantize is 'x'", {"m", "--quantize=x"}), "--quantize is 'x'");
  EXPECT_EQ(told(kWorker, "--quantize is 'x'", {"m", "--worker.quantize=x"}), "--worker.quantize is 'x'");
  EXPECT_EQ(told(kWorker, "there is no flag --kv-byte; did you mean --kv-bytes?", {"m", "--worker.kv-byte=1"}),
            "there is no flag --worker.kv-byte; did you mean --worker.kv-bytes?");
  // Neither part of a word, nor a flag of another program.
  EXPECT_EQ(told(kWorker, "x--kv-bytes --kv-bytes-max (--max-context of the manager)", {"m"}),
            "x--kv-bytes --kv-bytes-max (--max-context of the manager)");
}

TEST(ServeOptionsTest, ShortFlagsAreThoseOfTheirProgram) {
  const std::vector<const char*> arguments = {
      "--quantize",          "int4", "--kv-type=int8",       "--device=cuda", "m", "--port", "0", "--host=::1",
      "--served-model-name", "a,b",  "--served-model-name=c"};
  EXPECT_THAT(Texts(arguments, kWorker), ElementsAre("--device=cuda", "--quantize=int4", "--kv-type=int8"));
  EXPECT_THAT(Texts(arguments, kGateway), ElementsAre("--served-model-name=a,b,c", "--listen=[::1]:0"));
}

TEST(ServeOptionsTest, TheAddressOfTheGatewayIsGivenOnce) {
  EXPECT_THAT(Texts({"m", "--port=2"}, kGateway), ElementsAre("--listen=127.0.0.1:2"));
  EXPECT_THAT(Texts({"m", "--gateway.listen=127.0.0.1:1"}, kGateway), ElementsAre("--listen=127.0.0.1:1"));
  EXPECT_EQ(ErrorOf({"m", "--gateway.listen=127.0.0.1:1", "--port=2"}),
            "--gateway.listen is given as well as --host or --port, it must be one of them");
  EXPECT_EQ(ErrorOf({"m", "--port=65536"}), "--port is 65536, it must be 0 .. 65535");
}

TEST(ServeOptionsTest, OneModelIsNeeded) {
  EXPECT_THAT(ErrorOf({}),
              HasSubstr("MODEL is missing: a folder, a GGUF file, or owner/name on the hub\nUsage: quire"));
  EXPECT_EQ(ErrorOf({"m", "n"}), "'n' is a second MODEL after 'm'");
}

TEST(ServeOptionsTest, AnUnknownFlagIsSearchedForInAllPrograms) {
  EXPECT_EQ(ErrorOf({"m", "--kv-bytes=1GiB"}), "there is no flag --kv-bytes; did you mean --worker.kv-bytes?");
  EXPECT_EQ(ErrorOf({"m", "--kv_byte", "1GiB"}), "there is no flag --kv-byte; did you mean --worker.kv-bytes?");
  EXPECT_EQ(ErrorOf({"m", "--prot=1"}), "there is no flag --prot; did you mean --port?");
  EXPECT_EQ(ErrorOf({"m", "--log-level=debug"}),
            "there is no flag --log-level; did you mean --worker.log-level or --manager.log-level or "
            "--gateway.log-level?");
  EXPECT_EQ(ErrorOf({"m", "--nonsense"}),
            "there is no flag --nonsense; there are --config, --device, --host, --kv-type, --port, --quantize, "
            "--reranker, --served-model-name, and --worker.FLAG, --manager.FLAG and --gateway.FLAG for the flags of "
            "the programs");
  EXPECT_EQ(ErrorOf({"m", "-p"}), "'-p' is not a flag; see --help");
}

TEST(ServeOptionsTest, WhatServeDecidesIsRefused) {
  EXPECT_EQ(ErrorOf({"m", "--worker.model=x"}), "quire serve does not pass --worker.model on to quire-worker");
  EXPECT_EQ(ErrorOf({"m", "--manager.workers=x"}), "quire serve does not pass --manager.workers on to quire-manager");
  EXPECT_EQ(ErrorOf({"m", "--gateway.manager=x"}), "quire serve does not pass --gateway.manager on to quire-openai");
  EXPECT_EQ(ErrorOf({"m", "--manager.check-config"}),
            "quire serve does not pass --manager.check-config on to quire-manager");
}

TEST(ServeOptionsTest, HelpAndVersionNeedNoModel) {
  EXPECT_THAT(*Parse({"--help"})->text, HasSubstr("Usage: quire serve MODEL [flags]"));
  EXPECT_THAT(*Parse({"m", "--port=x", "-h"})->text, HasSubstr("--served-model-name\n"));
  EXPECT_THAT(*Parse({"--version"})->text, HasSubstr("quire serve 0."));
}

TEST_F(ServeConfigTest, TheFileHasASectionForEachProgramAndTheCommandLineComesLater) {
  const std::string config = absl::StrCat("--config=", FileWith("worker:\n"
                                                                "  kv-bytes: 1GiB\n"
                                                                "  quantize: int8\n"
                                                                "gateway:\n"
                                                                "  listen: 127.0.0.1:9000\n"
                                                                "  served_model_name: [a, b]\n"));
  EXPECT_THAT(Texts({"m", config.c_str(), "--quantize=int4", "--worker.kv-bytes=2GiB"}, kWorker),
              ElementsAre("--kv-bytes=1GiB", "--quantize=int8", "--quantize=int4", "--kv-bytes=2GiB"));
  EXPECT_THAT(Texts({"m", config.c_str()}, kGateway),
              ElementsAre("--listen=127.0.0.1:9000", "--served-model-name=a,b"));
  EXPECT_THAT(Texts({"m", config.c_str(), "--port=7"}, kGateway),
              ElementsAre("--listen=127.0.0.1:9000", "--served-model-name=a,b", "--listen=127.0.0.1:7"));
  const absl::StatusOr<CommandLine<ServeOptions>> line = Parse({"m", config.c_str(), "--quantize=int4"});
  EXPECT_EQ(line->options.flags[kWorker][0].name, "kv_bytes");
  EXPECT_EQ(line->options.flags[kWorker][0].source, absl::StrCat(path_, ":2"));
  EXPECT_EQ(line->options.flags[kWorker][2].source, "flag");
}

TEST_F(ServeConfigTest, ErrorsNameTheLine) {
  const auto error = [this](const std::string& text) {
    const std::string config = absl::StrCat("--config=", FileWith(text));
    return ErrorOf({"m", config.c_str()});
  };
  EXPECT_EQ(error("worker:\n  threads: 1\nwrker:\n  threads: 1\n"),
            absl::StrCat(path_, ":3: unknown section wrker, there are worker, manager and gateway"));
  EXPECT_EQ(error("worker:\n  threads: 1\n  threads: 2\n"), absl::StrCat(path_, ":3: worker.threads is given twice"));
  EXPECT_EQ(error("worker:\n  model: x\n"),
            absl::StrCat("quire serve does not pass worker.model (", path_, ":2) on to quire-worker"));
  EXPECT_EQ(error("gateway:\n  served_model_name: ['a,b']\n"),
            absl::StrCat(path_, ":2: served_model_name has the item 'a,b', it must be text without a comma"));
  EXPECT_EQ(error("threads: 1\n"), absl::StrCat(path_, ":1: 'threads' must be followed by lines of key: value"));
  EXPECT_EQ(ErrorOf({"m", "--config=/none.yaml"}), "/none.yaml: it cannot be read: No such file or directory");
}

TEST(ServeReferenceTest, TheDocumentsHaveTheFlags) {
  ServeFlags values;
  const std::string all = FlagTables(ServeSettings(&values));
  EXPECT_EQ(MadeSection("docs/configuration.md", "all flags of quire serve", all), all)
      << "Run this test with QUIRE_UPDATE_GOLDEN=1 to write the section again.";
}

}  // namespace
}  // namespace quire
