// SPDX-License-Identifier: Apache-2.0

#include "base/sampling_fields.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/number_text.h"
#include "tests/flag_reference.h"

namespace quire {
namespace {

std::string Row(const SamplingField& field) {
  const std::string neutral = NumberText(field.neutral());
  const absl::string_view help = field.help;
  return absl::StrCat("| `", field.name, "` | `", field.OptionName(), "` | ",
                      field.counts_tokens() ? "at most the size of the vocabulary" : field.RangeText(), " | ", neutral,
                      field.is_recommended() ? " or what the model recommends" : "",
                      field.is_recommended() ? absl::StrCat(" (`", field.gguf_key, "` in GGUF)") : "", " | ",
                      field.is_for_draws ? "must be the default" : "applies", " | ", help.substr(0, help.find(" [")),
                      " |\n");
}

TEST(SamplingFieldsTest, TheDocumentedTableIsThatOfTheCode) {
  std::string table =
      "| field | option of `quirectl` | range | default | in a beam search | meaning |\n|---|---|---|---|---|---|\n";
  for (const SamplingField& field : kSamplingFields) table += Row(field);
  EXPECT_EQ(MadeSection("docs/openai.md", "numbers of sampling", table), table)
      << "Run this test with QUIRE_UPDATE_GOLDEN=1 to write the section anew.";
}

TEST(SamplingFieldsTest, RangesHaveTheirEndsAndNoNan) {
  const SamplingField closed{.name = "closed", .member = &DrawParams::min_p, .low = 0.01, .value_text = "", .help = ""};
  EXPECT_EQ(closed.RangeText(), "in [0.01, 1]");
  EXPECT_TRUE(closed.Allows(0.01f));
  EXPECT_TRUE(closed.Allows(1));
  EXPECT_FALSE(closed.Allows(1.0000001f));
  EXPECT_FALSE(closed.Allows(std::numeric_limits<float>::quiet_NaN()));
  SamplingField open = closed;
  open.has_low = false;
  EXPECT_EQ(open.RangeText(), "in (0.01, 1]");
  EXPECT_FALSE(open.Allows(0.01f));
  open.high = std::numeric_limits<float>::max();
  EXPECT_EQ(open.RangeText(), "at least 0.01 and finite");
  EXPECT_FALSE(open.Allows(std::numeric_limits<float>::infinity()));
}

TEST(SamplingFieldsTest, AFieldReadsAndWritesItsMember) {
  DrawParams params;
  for (const SamplingField& field : kSamplingFields) {
    EXPECT_EQ(field.Of(params), field.neutral()) << field.name;
    field.Set(3, &params);
    EXPECT_EQ(field.Of(params), 3) << field.name;
  }
}

}  // namespace
}  // namespace quire
