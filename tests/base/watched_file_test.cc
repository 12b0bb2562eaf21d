// SPDX-License-Identifier: Apache-2.0

#include "base/watched_file.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// A file whose text is right unless it begins with "bad".
class WatchedFileTest : public testing::Test {
 protected:
  WatchedFileTest() { Replace("one"); }
  ~WatchedFileTest() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(aside_);
  }

  // Replaces the file in one moment.
  void Replace(const std::string& text) {
    std::ofstream(absl::StrCat(path_, ".new")) << text;
    std::filesystem::rename(absl::StrCat(path_, ".new"), path_);
  }

  void Open(std::chrono::milliseconds interval) {
    auto file = WatchedFile::Open({.flag = "words",
                                   .contents = "words",
                                   .path = path_,
                                   .read = [this](absl::string_view text) { return Read(text); },
                                   .interval = interval});
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
  }

  // Looks at the file, and returns what is logged.
  std::string Check() {
    testing::internal::CaptureStderr();
    file_->Check();
    return testing::internal::GetCapturedStderr();
  }

  std::string text() {
    const MutexLock lock(&mutex_);
    return text_;
  }

  absl::Status Read(absl::string_view text) {
    if (absl::StartsWith(text, "bad")) return absl::InvalidArgumentError("line 1 is bad");
    const MutexLock lock(&mutex_);
    text_ = std::string(text);
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  // Returns false when this text has not come within a minute.
  bool WaitForText(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    const MutexLock lock(&mutex_);
    while (text_ != text && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return text_ == text;
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "/quire_watched_file_test.", getpid());
  const std::string aside_ = path_ + ".aside";
  Mutex mutex_;
  CondVar changed_;
  std::string text_ QUIRE_GUARDED_BY(mutex_);
  std::unique_ptr<WatchedFile> file_;
};

constexpr std::chrono::hours kNever(1);

TEST_F(WatchedFileTest, AChangeIsReadOnce) {
  Open(kNever);
  EXPECT_EQ(text(), "one");
  EXPECT_EQ(Check(), "");
  Replace("two");
  EXPECT_THAT(Check(), HasSubstr("read the words again from " + path_));
  EXPECT_EQ(text(), "two");
  EXPECT_EQ(Check(), "");
}

TEST_F(WatchedFileTest, AMistakeIsLoggedOnceWithItsLineAndChangesNothingUntilItIsMended) {
  Open(kNever);
  Replace("bad");
  EXPECT_THAT(Check(), HasSubstr("--words: " + path_ + ": line 1 is bad; the words stay as they were\n"));
  EXPECT_EQ(Check(), "");
  EXPECT_FALSE(file_->is_valid());
  EXPECT_EQ(text(), "one");
  Replace("two");
  EXPECT_THAT(Check(), HasSubstr("--words: " + path_ + " is right again, its words are in use\n"));
  EXPECT_TRUE(file_->is_valid());
  EXPECT_EQ(text(), "two");
}

TEST_F(WatchedFileTest, AFileThatWasMovedAwayIsRightAgainWhenItIsBack) {
  Open(kNever);
  std::filesystem::rename(path_, aside_);
  EXPECT_THAT(Check(), HasSubstr("cannot read " + path_ + ": No such file or directory; the words stay as they were"));
  EXPECT_FALSE(file_->is_valid());
  std::filesystem::rename(aside_, path_);
  EXPECT_THAT(Check(), HasSubstr("is right again"));
  EXPECT_TRUE(file_->is_valid());
}

TEST_F(WatchedFileTest, AWrongFileThatWasMovedAwayIsStillWrongWhenItIsBack) {
  Open(kNever);
  Replace("bad");
  Check();
  std::filesystem::rename(path_, aside_);
  Check();
  std::filesystem::rename(aside_, path_);
  EXPECT_THAT(Check(), HasSubstr("line 1 is bad"));
  EXPECT_FALSE(file_->is_valid());
}

TEST_F(WatchedFileTest, AThreadLooksAtTheFile) {
  Open(std::chrono::milliseconds(1));
  Replace("two");
  EXPECT_TRUE(WaitForText("two")) << "the text is " << text();
}

TEST_F(WatchedFileTest, AFileThatIsWrongAtTheStartIsAnError) {
  Replace("bad");
  const auto file = WatchedFile::Open(
      {.flag = "words", .contents = "words", .path = path_, .read = [this](auto text) { return Read(text); }});
  EXPECT_EQ(file.status(), absl::InvalidArgumentError(path_ + ": line 1 is bad"));
}

}  // namespace
}  // namespace quire
