// SPDX-License-Identifier: Apache-2.0

#include "security/token_file.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/security/certificates.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// The SHA-256 digests of "abc", which is the example in FIPS 180-4, and of the empty string.
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kNothing[] = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855";

std::string Error(const std::string& text) {
  const absl::Status status = TokenTable::Parse(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(TokenTableTest, ATokenIsFoundByItsDigest) {
  const auto table =
      TokenTable::Parse(std::string("# who may call\n\n  acme ") + kAbc + "\r\nops\t" + kNothing + " admin\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->Find("abc"), (Caller{.tenant = "acme", .is_admin = false}));
  EXPECT_EQ(table->Find(""), (Caller{.tenant = "ops", .is_admin = true}));
  EXPECT_EQ(table->Find("ab"), std::nullopt);
  EXPECT_EQ(table->Find(kAbc), std::nullopt) << "the file's own text is no token";
  EXPECT_EQ(TokenTable::Parse("")->Find("abc"), std::nullopt);
}

TEST(TokenTableTest, ALineThatIsWrongIsNamedAndNotShown) {
  const std::string good = std::string("acme ") + kAbc + "\n";
  EXPECT_EQ(Error(good + "acme\n"), "line 2 has 1 words, it must be TENANT SHA256 or TENANT SHA256 admin");
  EXPECT_EQ(Error(std::string("acme ") + kAbc + " root"),
            "line 1 has a third word that is not admin, it must be TENANT SHA256 or TENANT SHA256 admin");
  EXPECT_EQ(Error(good + "# fine\nacme secret"),
            "line 3 has a digest of 6 characters, it must be 64 hexadecimal digits");
  EXPECT_EQ(Error("acme " + std::string(64, 'g')),
            "line 1 has a digest of 64 characters, it must be 64 hexadecimal digits");
  EXPECT_EQ(Error(std::string(129, 'a') + " " + kAbc),
            "line 1 has a tenant of 129 bytes, it must be at most 128 visible ASCII characters");
  std::string many;
  for (size_t i = 0; i <= TokenTable::kMaxTokens; ++i)
    absl::StrAppend(&many, "acme ", absl::Hex(i, absl::kZeroPad16), std::string(48, '0'), "\n");
  EXPECT_EQ(Error(good + "globex " + kAbc), "line 2 has the digest of line 1");
  EXPECT_EQ(Error(many), "line 4097 is one too many, the limit is 4096");
}

class TokenFileTest : public ::testing::Test {
 protected:
  // Returns whether the token "abc" is known after the next look at the file.
  bool IsKnown() {
    file_->file()->Check();
    return file_->Find("abc").has_value();
  }
  void Open() {
    auto file = TokenFile::Open(path_, std::chrono::hours(1));
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "tokens";
  std::shared_ptr<TokenFile> file_;
};

TEST_F(TokenFileTest, AChangeIsTakenUp) {
  ReplaceFile(path_, std::string("acme ") + kAbc);
  Open();
  EXPECT_TRUE(file_->Find("abc").has_value());
  const uint64_t num_tables = file_->num_tables();
  EXPECT_TRUE(IsKnown());
  EXPECT_EQ(file_->num_tables(), num_tables);
  ReplaceFile(path_, std::string("acme ") + kNothing);
  EXPECT_FALSE(IsKnown());
  EXPECT_EQ(file_->num_tables(), num_tables + 1);
  ReplaceFile(path_, std::string("acme ") + kAbc);
  EXPECT_TRUE(IsKnown());
}

TEST_F(TokenFileTest, AFileThatIsWrongOrGoneChangesNothing) {
  ReplaceFile(path_, std::string("acme ") + kAbc);
  Open();
  ReplaceFile(path_, "nonsense");
  EXPECT_TRUE(IsKnown());
  std::filesystem::remove(path_);
  EXPECT_TRUE(IsKnown());
  ReplaceFile(path_, "# nobody\n");
  EXPECT_FALSE(IsKnown());
}

TEST_F(TokenFileTest, AnEmptyFileHasNoTokens) {
  ReplaceFile(path_, std::string("acme ") + kAbc);
  Open();
  ReplaceFile(path_, "");
  EXPECT_FALSE(IsKnown());
  Open();
  EXPECT_FALSE(IsKnown());
}

TEST_F(TokenFileTest, AFileThatCannotBeReadNowIsReadLater) {
  ReplaceFile(path_, std::string("acme ") + kAbc);
  Open();
  ReplaceFile(path_, std::string("acme ") + kNothing);
  rlimit files = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = files.rlim_max};
  testing::internal::CaptureStderr();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool was_known = IsKnown() && IsKnown();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(was_known);
  EXPECT_THAT(log, HasSubstr("cannot read " + path_ + ": Too many open files; the tokens stay as they were\n"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_FALSE(IsKnown());
}

TEST_F(TokenFileTest, AStartNeedsAGoodFile) {
  EXPECT_EQ(TokenFile::Open(path_).status().message(), "cannot read " + path_ + ": No such file or directory");
  EXPECT_EQ(TokenFile::Open(directory_ / ".").status().message(),
            "cannot read " + (directory_ / ".") + ": Is a directory");
  ReplaceFile(path_, "acme");
  EXPECT_EQ(TokenFile::Open(path_).status().message(),
            path_ + ": line 1 has 1 words, it must be TENANT SHA256 or TENANT SHA256 admin");
}

}  // namespace
}  // namespace quire
