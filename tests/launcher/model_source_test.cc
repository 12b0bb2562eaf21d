// SPDX-License-Identifier: Apache-2.0

#include "launcher/model_source.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

// A folder with mine/model and file.gguf, which is the working directory of the test.
class ModelSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ + "/mine/model");
    std::ofstream(folder_ + "/file.gguf") << "x";
    std::filesystem::current_path(folder_);
  }
  ~ModelSourceTest() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }

  static void ExpectModel(const std::string& typed, const std::string& model, bool is_of_hub) {
    const absl::StatusOr<ModelSource> source = FindModel(typed);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(source->model, model);
    EXPECT_EQ(source->is_of_hub, is_of_hub);
  }

  const std::string before_ = std::filesystem::current_path();
  const std::string folder_ = absl::StrCat(testing::TempDir(), "/model_source_", ::getpid());
};

TEST_F(ModelSourceTest, WhatExistsIsAPath) {
  ExpectModel("mine/model", "mine/model", false);
  ExpectModel("file.gguf", "file.gguf", false);
  ExpectModel(folder_ + "/mine", folder_ + "/mine", false);
}

TEST_F(ModelSourceTest, OtherNamesWithAnOwnerAreOfTheHub) {
  ExpectModel("Qwen/Qwen3-0.6B", "hf:Qwen/Qwen3-0.6B", true);
  ExpectModel("Qwen/Q-GGUF/q.gguf@main", "hf:Qwen/Q-GGUF/q.gguf@main", true);
  ExpectModel("hf:mine/model", "hf:mine/model", true);
}

TEST_F(ModelSourceTest, AMistypedPathIsNotAskedForAtTheHub) {
  EXPECT_EQ(FindModel("mine/modle").status().message(),
            "MODEL is 'mine/modle', and there is no such folder or file; a model of the hub is written hf:mine/modle");
  for (const char* path : {"model", "./a/b", "../none/a", "/none/model", "~/model", ""}) {
    EXPECT_EQ(FindModel(path).status().message(),
              absl::StrCat("MODEL is '", path, "', and there is no such folder or file"));
  }
}

}  // namespace
}  // namespace quire
