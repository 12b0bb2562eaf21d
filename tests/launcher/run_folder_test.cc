// SPDX-License-Identifier: Apache-2.0

#include "launcher/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() { std::filesystem::create_directory(parent_); }
  ~RunFolderTest() override { std::filesystem::remove_all(parent_); }

  std::unique_ptr<RunFolder> Made() {
    auto folder = std::make_unique<RunFolder>();
    EXPECT_TRUE(folder->Make(parent_).ok());
    std::ofstream(folder->path() + "/worker.log") << "a line\n";
    return folder;
  }

  const std::string parent_ = absl::StrCat(testing::TempDir(), "run_folder_", ::getpid());
};

TEST_F(RunFolderTest, AFolderIsThereUntilItIsRemoved) {
  const std::unique_ptr<RunFolder> folder = Made();
  EXPECT_THAT(folder->path(), StartsWith(parent_ + "/quire."));
  EXPECT_TRUE(std::filesystem::exists(folder->path() + "/worker.log"));
  folder->Remove();
  EXPECT_TRUE(std::filesystem::is_empty(parent_));
}

TEST_F(RunFolderTest, TheNextOneRemovesAFolderWhoseOwnerIsGone) {
  std::unique_ptr<RunFolder> killed = Made();
  const std::string path = killed->path();
  killed.reset();  // As at the end of a process.
  ASSERT_TRUE(std::filesystem::exists(path));
  const std::unique_ptr<RunFolder> next = Made();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists(next->path()));
}

TEST_F(RunFolderTest, FoldersOfLivingProcessesKeptOnesAndOthersStay) {
  const std::unique_ptr<RunFolder> living = Made();
  std::unique_ptr<RunFolder> kept = Made();
  const std::string path = kept->path();
  kept->Keep();
  kept.reset();
  for (const char* other : {"/quire.local1", "/quire.longer_name", "/other.abcdef"}) {
    std::filesystem::create_directory(parent_ + other);
  }
  std::ofstream(parent_ + "/quire.longer_name/lock") << "";
  std::ofstream(parent_ + "/other.abcdef/lock") << "";
  std::filesystem::create_directory_symlink(parent_ + "/other.abcdef", parent_ + "/quire.linked");
  Made()->Remove();
  EXPECT_TRUE(std::filesystem::exists(living->path() + "/worker.log"));
  EXPECT_TRUE(std::filesystem::exists(path + "/worker.log"));
  EXPECT_TRUE(std::filesystem::exists(parent_ + "/quire.local1"));
  EXPECT_TRUE(std::filesystem::exists(parent_ + "/quire.longer_name/lock"));
  EXPECT_TRUE(std::filesystem::exists(parent_ + "/quire.linked/lock"));
}

TEST_F(RunFolderTest, WithoutItsParentThereIsAnError) {
  RunFolder folder;
  const absl::Status status = folder.Make(parent_ + "/none");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/none/quire."));
  EXPECT_THAT(std::string(status.message()), HasSubstr("No such file or directory"));
  EXPECT_EQ(folder.path(), "");
}

}  // namespace
}  // namespace quire
