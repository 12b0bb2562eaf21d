// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/process/tenant_file.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

std::string Error(const std::string& text) {
  return std::string(ParseTenantTable("FILE", text).status().message());
}

TEST(ParseTenantTableTest, ATenantHasItsOwnKeysAndThoseOfTheOthers) {
  const auto table = ParseTenantTable("FILE",
                                      "acme:\n"
                                      "  weight: 2.5\n"
                                      "  max_waiting_requests: 100\n"
                                      "\"*\": {max_requests: 50, max_blocks_share: 0.5}\n"
                                      "\"\": {max_requests: 0}\n");
  ASSERT_TRUE(table.ok()) << table.status();
  const TenantLimits others{.share = {.max_blocks_share = 0.5}, .max_requests = 50};
  EXPECT_EQ(table->Of("any"), others);
  const TenantLimits acme{
      .share = {.weight = 2.5, .max_blocks_share = 0.5}, .max_waiting_requests = 100, .max_requests = 50};
  EXPECT_EQ(table->Of("acme"), acme);
  EXPECT_EQ(table->Of("").max_requests, 0);
  EXPECT_EQ(table->Shares().Of("acme"), acme.share);
  EXPECT_EQ(*ParseTenantTable("FILE", "\"*\": {}\n"), TenantTable());
}

TEST(ParseTenantTableTest, AnErrorNamesTheLineTheTenantTheKeyTheValueAndTheLimit) {
  EXPECT_EQ(Error("a:\n  weight: 0\n"),
            "FILE:2: weight is 0, it must be a number from 0.001 to 1000000 (tenant \"a\")");
  EXPECT_EQ(Error("a: {weight: nan}"),
            "FILE:1: weight is nan, it must be a number from 0.001 to 1000000 (tenant \"a\")");
  EXPECT_EQ(Error("a: {max_requests: -1}"),
            "FILE:1: max_requests is -1, it must be a number from 0 to 2147483647 (tenant \"a\")");
  EXPECT_EQ(Error("a: {max_waiting_requests: 0}"),
            "FILE:1: max_waiting_requests is 0, it must be a number from 1 to 2147483647 (tenant \"a\")");
  EXPECT_EQ(Error("a: {max_blocks_share: 1.1}"),
            "FILE:1: max_blocks_share is 1.1, it must be a number from 0.000001 to 1 (tenant \"a\")");
  EXPECT_THAT(Error("a: {max_block_share: 1}"), HasSubstr("unknown key max_block_share, it must be weight, "));
  EXPECT_THAT(Error("a: {weight: [1]}"), HasSubstr("weight is a list"));
  EXPECT_THAT(Error("a: {weight: 1, weight: 2}"), HasSubstr("weight is given twice"));
  EXPECT_THAT(Error("a: 1"), HasSubstr("FILE:1: 'a' must be followed by lines of key: value"));
  EXPECT_THAT(Error("a: {}\na: {}"), HasSubstr("FILE:2: 'a' is given twice, first at FILE:1"));
  EXPECT_THAT(Error("a b: {}"), HasSubstr("visible ASCII"));
  EXPECT_THAT(Error("*: {}"), HasSubstr("it is not YAML"));
  EXPECT_THAT(Error("*: {}"), HasSubstr("write * in quotes"));
  // A file that an editor has emptied before it writes it must not lift all limits.
  EXPECT_EQ(Error("# nobody\n"), "FILE: it has no tenant, it must have at least one; \"*\": {} sets no limits");
}

class TenantFileTest : public ::testing::Test {
 protected:
  ~TenantFileTest() override { unlink(path_.c_str()); }

  // Replaces the file at once, as a careful editor does.
  void Write(const std::string& text) {
    const std::string next = path_ + ".next";
    std::ofstream(next) << text;
    ASSERT_EQ(std::rename(next.c_str(), path_.c_str()), 0);
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "/tenants.", getpid());
};

TEST_F(TenantFileTest, AChangeIsTakenUpAndABrokenFileChangesNothing) {
  Write("acme: {max_requests: 1}");
  TenantTable table;
  int num_tables = 0;
  // The thread sleeps throughout the test.
  const auto file = OpenTenantFile(
      path_,
      [&](TenantTable next) {
        table = std::move(next);
        ++num_tables;
      },
      std::chrono::hours(1));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(table.Of("acme").max_requests, 1);
  testing::internal::CaptureStderr();
  Write("acme: {max_requests: many}");
  (*file)->Check();
  EXPECT_FALSE((*file)->is_valid());
  EXPECT_EQ(testing::internal::GetCapturedStderr().substr(27),
            absl::StrCat("--tenants: ", path_,
                         ":1: max_requests is many, it must be a number from 0 to 2147483647 (tenant \"acme\"); the "
                         "limits of the tenants stay as they were\n"));
  EXPECT_EQ(num_tables, 1);
  Write("acme: {max_requests: 2}");
  (*file)->Check();
  EXPECT_TRUE((*file)->is_valid());
  EXPECT_EQ(table.Of("acme").max_requests, 2);
  EXPECT_EQ(num_tables, 2);
}

TEST_F(TenantFileTest, AStartNeedsAGoodFile) {
  const auto open = [this] { return OpenTenantFile(path_, [](const TenantTable&) {}).status(); };
  EXPECT_THAT(open().message(), HasSubstr("cannot read"));
  Write("acme: {max_requests: many}");
  EXPECT_THAT(open().message(), HasSubstr(path_ + ":1: max_requests is many"));
}

}  // namespace
}  // namespace quire
