// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/proto/wire_rules.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const std::string kDescriptors = BinaryPath("proto/quire.desc");
constexpr char kUnruly[] = QUIRE_UNRULY_DESCRIPTORS;
const std::string kGolden = SourcePath("tests/golden/proto/quire.v1.txt");
// The same table for the last release. tools/release sees to it that a release has its own.
const std::string kReleased = SourcePath("tests/golden/proto/released.txt");

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream content;
  content << in.rdbuf();
  return content.str();
}

// Schemas as protoc wrote them, with comments.
class WireSchemaTest : public ::testing::Test {
 protected:
  // Returns the files of a descriptor set, without protobuf's own.
  std::vector<const google::protobuf::FileDescriptor*> Load(const std::string& path) {
    google::protobuf::FileDescriptorSet set;
    EXPECT_TRUE(set.ParseFromString(ReadFile(path))) << path;
    std::vector<const google::protobuf::FileDescriptor*> files;
    for (const google::protobuf::FileDescriptorProto& file : set.file()) {
      const google::protobuf::FileDescriptor* built = pool_.BuildFile(file);
      EXPECT_NE(built, nullptr) << file.name();
      if (built != nullptr && !absl::StartsWith(file.name(), "google/protobuf/")) files.push_back(built);
    }
    return files;
  }

  google::protobuf::DescriptorPool pool_;
};

TEST_F(WireSchemaTest, HasTheFilesOfTheWire) {
  std::vector<std::string> names;
  for (const auto* file : Load(kDescriptors)) names.push_back(file->name());
  EXPECT_THAT(names, UnorderedElementsAre("quire/v1/common.proto", "quire/v1/inference.proto", "quire/v1/worker.proto",
                                          "quire/v1/inspect.proto", "quire/v1/admin.proto", "google/rpc/status.proto",
                                          "google/rpc/error_details.proto"));
}

TEST_F(WireSchemaTest, FollowsTheHouseRules) {
  for (const auto* file : Load(kDescriptors)) EXPECT_THAT(WireRuleViolations(*file), IsEmpty()) << file->name();
}

TEST_F(WireSchemaTest, FilesLieInTheFolderOfTheirPackage) {
  for (const auto* file : Load(kDescriptors)) {
    const std::string folder = absl::StrJoin(absl::StrSplit(file->package(), '.'), "/") + "/";
    EXPECT_TRUE(absl::StartsWith(file->name(), folder)) << file->name();
  }
}

TEST_F(WireSchemaTest, IsTheSameAsBefore) {
  std::vector<std::string> lines;
  for (const auto* file : Load(kDescriptors)) {
    for (std::string& line : WireLines(*file)) lines.push_back(std::move(line));
  }
  std::sort(lines.begin(), lines.end());
  const std::string now = absl::StrJoin(lines, "\n") + "\n";
  if (std::getenv("QUIRE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(kGolden, std::ios::binary) << now;
  }

  const std::string golden = ReadFile(kGolden);
  std::vector<std::string> before = absl::StrSplit(golden, '\n', absl::SkipEmpty());
  std::vector<std::string> gone, added;
  std::set_difference(before.begin(), before.end(), lines.begin(), lines.end(), std::back_inserter(gone));
  std::set_difference(lines.begin(), lines.end(), before.begin(), before.end(), std::back_inserter(added));
  EXPECT_THAT(gone, IsEmpty()) << "These lines of " << kGolden << " changed or went: programs already built break. "
                               << "Keep the field, or take a new number and reserve the old one.";
  EXPECT_THAT(added, IsEmpty()) << "New on the wire. If that is meant, run this test once with QUIRE_UPDATE_GOLDEN=1 "
                                << "and commit " << kGolden << " with the change.";
  EXPECT_EQ(golden, now);
}

// Programs of the last release work with this one, so nothing of its wire may change or go.
TEST_F(WireSchemaTest, HasEverythingOfTheLastRelease) {
  std::set<std::string> lines;
  for (const auto* file : Load(kDescriptors)) {
    for (std::string& line : WireLines(*file)) lines.insert(std::move(line));
  }
  const std::string released = ReadFile(kReleased);
  EXPECT_FALSE(released.empty());
  for (const absl::string_view line : absl::StrSplit(released, '\n', absl::SkipEmpty())) {
    // A range of reserved numbers may grow.
    const bool is_there = absl::StrContains(line, " reserved to ") || lines.contains(std::string(line));
    EXPECT_TRUE(is_there) << line << "\nThe last release had this.";
  }
}

TEST_F(WireSchemaTest, RulesFindEveryOffence) {
  ASSERT_EQ(Load(kUnruly).size(), 1u);
  EXPECT_THAT(
      WireRuleViolations(*pool_.FindFileByName("unruly.proto")),
      ElementsAre("unruly.proto package unruly has no version, as in quire.v1",
                  "unruly.NoComment has no comment above it", "unruly.NoComment.single has no comment above it",
                  "unruly.NoComment.name has no comment above it", "unruly.NoComment.ids has no comment above it",
                  "unruly.NoComment.bias has no comment above it", "unruly.NoComment.color has no comment above it",
                  "unruly.NoComment.inner has no comment above it", "unruly.NoComment.choice has no comment above it",
                  "unruly.bad_message is not CamelCase", "unruly.bad_message.badField is not lower_snake_case",
                  "unruly.DrawParams.width is a parameter and not optional: unset would mean zero",
                  "unruly.RED does not begin with COLOR_", "unruly.RED is 0 and not COLOR_UNSPECIFIED",
                  "unruly.COLOR_BLUE has no comment above it", "unruly.Painter does not end in Service",
                  "unruly.Painter.Paint is not Paint(PaintRequest) returns (PaintResponse)"));
}

TEST_F(WireSchemaTest, LinesTellEveryPropertyOfTheEncoding) {
  ASSERT_EQ(Load(kUnruly).size(), 1u);
  EXPECT_THAT(WireLines(*pool_.FindFileByName("unruly.proto")),
              ElementsAre("enum unruly.Color 0000 RED", "enum unruly.Color 0001 COLOR_BLUE",
                          "message unruly.DrawParams", "message unruly.DrawParams 0001 width: float (single)",
                          "message unruly.DrawParams 0002 height: float (optional)",
                          "message unruly.DrawParams 0003 dashes: float (repeated packed)", "message unruly.NoComment",
                          "message unruly.NoComment 0001 single: float (optional)",
                          "message unruly.NoComment 0002 name: string (single)",
                          "message unruly.NoComment 0003 ids: uint32 (repeated packed)",
                          "message unruly.NoComment 0004 bias: map<uint32,float> (map)",
                          "message unruly.NoComment 0005 color: unruly.Color (oneof choice)",
                          "message unruly.NoComment 0006 inner: unruly.NoComment (oneof choice)",
                          "message unruly.NoComment 0009 reserved to 9", "message unruly.NoComment 0011 reserved to 12",
                          "message unruly.bad_message", "message unruly.bad_message 0001 badField: uint32 (single)",
                          "rpc unruly.Painter.Paint(unruly.DrawParams) returns (stream unruly.DrawParams)"));
}

}  // namespace
}  // namespace quire
