// SPDX-License-Identifier: Apache-2.0

#include "worker/model/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

std::string NameErrorOf(const std::string& name) {
  const absl::StatusOr<HubModel> model = ParseHubName(name);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << name;
  return std::string(model.status().message());
}

TEST(HubNameTest, AllFormsAreRead) {
  EXPECT_TRUE(IsHubName("hf:owner/name"));
  EXPECT_FALSE(IsHubName("/models/hf:owner/name"));
  const HubModel whole = ParseHubName("hf:Qwen/Qwen3-0.6B").value();
  EXPECT_EQ(whole.repository, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(whole.revision, "main");
  EXPECT_EQ(whole.file, "");
  EXPECT_EQ(ParseHubName("hf:a/b@refs/pr/1")->revision, "refs/pr/1");
  const HubModel gguf = ParseHubName("hf:a/b_GGUF/Q8/b-Q8_0--new.gguf@v1.0").value();
  EXPECT_EQ(gguf.repository, "a/b_GGUF");
  EXPECT_EQ(gguf.file, "Q8/b-Q8_0--new.gguf");
  EXPECT_EQ(gguf.revision, "v1.0");
}

TEST(HubNameTest, OtherNamesAreRefusedWithTheWrongPart) {
  for (const char* name : {"hf:", "hf:name", "hf:/name", "hf:owner/", "hf:../name", "hf:owner/..", "hf:a--b/c",
                           "hf:owner/na me", "hf:-owner/name", "hf:.owner/name"}) {
    EXPECT_THAT(NameErrorOf(name), HasSubstr("hf:owner/name or hf:owner/name/FILE.gguf")) << name;
  }
  EXPECT_THAT(NameErrorOf("hf:a/b/config.json"),
              HasSubstr("hf:a/b/config.json, its file \"config.json\" must be a GGUF file"));
  EXPECT_THAT(NameErrorOf("hf:a/b/../c.gguf"), HasSubstr("its file \"../c.gguf\""));
  EXPECT_THAT(NameErrorOf("hf:a/b@"), HasSubstr("its revision \"\" must be"));
  EXPECT_THAT(NameErrorOf("hf:a/b@../../x"), HasSubstr("its revision \"../../x\""));
  EXPECT_THAT(NameErrorOf("hf:a/b@main/c.gguf@x"), HasSubstr("@revision belongs at the end"));
  EXPECT_THAT(NameErrorOf("hf:a/b:Q4_K_M"), HasSubstr("a tag such as \":Q4_K_M\" names no file; write the file"));
}

// Sets environment variables of the hub, and restores them in the end. Those that are not named are removed.
class HubEnvironment {
 public:
  explicit HubEnvironment(const std::map<std::string, std::string>& values) {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      const char* const old = getenv(name);
      before_[name] = old == nullptr ? std::nullopt : std::optional<std::string>(old);
      const auto found = values.find(name);
      Set(name, found == values.end() ? std::nullopt : std::optional<std::string>(found->second));
    }
  }
  ~HubEnvironment() {
    for (const auto& [name, value] : before_) Set(name, value);
  }

 private:
  static void Set(const std::string& name, const std::optional<std::string>& value) {
    value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> before_;
};

std::string FolderWith(const std::map<std::string, std::string>& values) {
  const HubEnvironment environment(values);
  return HubCacheFolder();
}

TEST(HubCacheFolderTest, ItIsWhereTheProgramsOfTheHubHaveIt) {
  std::map<std::string, std::string> values = {{"HOME", "/home/ada"}};
  EXPECT_EQ(FolderWith(values), "/home/ada/.cache/huggingface/hub");
  values["XDG_CACHE_HOME"] = "/cache";
  EXPECT_EQ(FolderWith(values), "/cache/huggingface/hub");
  values["HF_HOME"] = "~/hf";
  EXPECT_EQ(FolderWith(values), "/home/ada/hf/hub");
  values["HUGGINGFACE_HUB_CACHE"] = "/old";
  EXPECT_EQ(FolderWith(values), "/old");
  values["HF_HUB_CACHE"] = "/models";
  EXPECT_EQ(FolderWith(values), "/models");
}

class HubCacheTest : public testing::Test {
 protected:
  // Writes a file as a client of the hub does: a blob, and a link to it in the snapshot.
  void Download(const std::string& name, const std::string& contents = "{}") {
    const fs::path link = fs::path(snapshot_) / name;
    fs::create_directories(link.parent_path());
    fs::create_directories(folder_ + "/blobs");
    const std::string blob = absl::StrCat("blob", ++num_blobs_);
    cache_.Write("models--owner--name/blobs/" + blob, contents);
    fs::create_symlink((fs::path(folder_) / "blobs" / blob).lexically_relative(link.parent_path()), link);
  }
  void SetReference(const std::string& name, const std::string& contents) {
    fs::create_directories((fs::path(folder_) / "refs" / name).parent_path());
    cache_.Write("models--owner--name/refs/" + name, contents);
  }
  absl::StatusOr<std::string> Find(const std::string& name) {
    return FindInHubCache(ParseHubName(name).value(), cache_.path());
  }
  std::string Error(const std::string& name, absl::StatusCode code = absl::StatusCode::kNotFound) {
    const absl::Status status = Find(name).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  const TestDirectory cache_;
  const std::string folder_ = cache_.path() + "/models--owner--name";
  const std::string snapshot_ = absl::StrCat(folder_, "/snapshots/", kCommit);
  int num_blobs_ = 0;
};

TEST_F(HubCacheTest, ACheckpointIsFoundByBranchAndByCommit) {
  SetReference("main", absl::StrCat(kCommit, "\n"));
  SetReference("refs/pr/1", kCommit);
  Download("config.json");
  Download("model.safetensors");
  for (const std::string name : {"hf:owner/name", "hf:owner/name@main", "hf:owner/name@refs/pr/1"}) {
    EXPECT_EQ(Find(name).value(), snapshot_) << name;
  }
  EXPECT_EQ(Find(absl::StrCat("hf:owner/name@", kCommit)).value(), snapshot_);
  const HubEnvironment environment({{"HF_HUB_CACHE", cache_.path()}});
  EXPECT_EQ(ModelPath("hf:owner/name").value(), snapshot_);
  EXPECT_EQ(ModelPath("owner/name").value(), "owner/name");
}

TEST_F(HubCacheTest, WhatIsMissingIsNamedWithTheCommandThatDownloadsIt) {
  EXPECT_THAT(Error("hf:owner/name@v1"),
              AllOf(HasSubstr("hf:owner/name@v1 is not in the cache of the hub, " + cache_.path() + ": "),
                    HasSubstr("there is no folder " + folder_ + ";"), HasSubstr("\"quire-download hf:owner/name@v1\""),
                    HasSubstr("HF_HUB_CACHE")));
  fs::create_directories(folder_);
  EXPECT_THAT(Error("hf:owner/name"), HasSubstr("there is no file " + folder_ + "/refs/main;"));
  SetReference("main", "main");
  EXPECT_THAT(Error("hf:owner/name"), HasSubstr("/refs/main has no commit"));
  SetReference("main", kCommit);
  EXPECT_THAT(Error("hf:owner/name"), HasSubstr("there is no folder " + snapshot_ + ";"));
  Download("tokenizer.json");
  EXPECT_THAT(Error("hf:owner/name"), HasSubstr("there is no file " + snapshot_ + "/config.json;"));
  Download("config.json");
  EXPECT_THAT(Error("hf:owner/name"), HasSubstr("there are no weights in " + snapshot_ + ";"));
  EXPECT_THAT(Error("hf:owner/name/a.gguf"), AllOf(HasSubstr("there is no file " + snapshot_ + "/a.gguf;"),
                                                   HasSubstr("\"quire-download hf:owner/name/a.gguf\"")));
}

TEST_F(HubCacheTest, ADownloadThatWasCutIsNoModel) {
  SetReference("main", kCommit);
  Download("config.json");
  Download("model.safetensors.index.json",
           R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}})");
  Download("model-1.safetensors");
  EXPECT_THAT(Error("hf:owner/name"), HasSubstr("1 of 2 files of weights are missing, the first one is " + snapshot_ +
                                                "/model-2.safetensors;"));
  fs::create_symlink("../../blobs/none", snapshot_ + "/model-2.safetensors");
  EXPECT_THAT(Error("hf:owner/name"), HasSubstr("1 of 2 files"));
  fs::remove(snapshot_ + "/model-2.safetensors");
  Download("model-2.safetensors");
  EXPECT_EQ(Find("hf:owner/name").value(), snapshot_);
}

TEST_F(HubCacheTest, PicklesAreExplainedAndNotDownloadedAgain) {
  SetReference("main", kCommit);
  Download("config.json");
  Download("pytorch_model.bin");
  EXPECT_THAT(Error("hf:owner/name"), AllOf(HasSubstr("is a PyTorch pickle"), Not(HasSubstr("quire-download"))));
}

TEST_F(HubCacheTest, AGgufFileIsNamedAndFoundInFoldersToo) {
  SetReference("main", kCommit);
  Download("a-Q8_0.gguf");
  Download("big/b-Q4_0.gguf");
  EXPECT_EQ(Find("hf:owner/name/big/b-Q4_0.gguf").value(), snapshot_ + "/big/b-Q4_0.gguf");
  EXPECT_THAT(Error("hf:owner/name", absl::StatusCode::kInvalidArgument),
              HasSubstr("name one file: hf:owner/name/a-Q8_0.gguf or hf:owner/name/big/b-Q4_0.gguf"));
}

}  // namespace
}  // namespace quire
