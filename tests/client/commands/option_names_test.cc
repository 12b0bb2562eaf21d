// SPDX-License-Identifier: Apache-2.0

#include "client/commands/option_names.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "quire/v1/inference.pb.h"

namespace quire {
namespace {

std::string Translated(const std::string& message) {
  return std::string(WithOptionNames(absl::InvalidArgumentError(message)).message());
}

TEST(OptionNamesTest, SentencesNameOptionsInPlaceOfFields) {
  EXPECT_EQ(Translated("stopping.min_tokens: is 5, stopping.max_tokens is 4, the default"),
            "--min-tokens is 5, --max-tokens is 4, the default");
  EXPECT_EQ(Translated("stopping.ignore_eos: is true, it cannot be combined with guided.regex"),
            "--ignore-eos is true, it cannot be combined with --regex");
  EXPECT_EQ(Translated("n: is 2 in a beam search (beam.width is 4), must be unset: beam.num_return_sequences tells"),
            "--samples is 2 in a beam search (--beam is 4), must be unset: --return tells");
  EXPECT_EQ(Translated("logprobs: is 20, which best_of sends (and 1 more error)\n  stopping.stop[1]: is empty"),
            "--logprobs is 20, which --best-of sends (and 1 more error)\n  --stop[1] is empty");
  EXPECT_EQ(Translated("prompt has 5 tokens and stopping.max_tokens is 9: this takes up to 4 KV blocks"),
            "prompt has 5 tokens and --max-tokens is 9: this takes up to 4 KV blocks");
  EXPECT_EQ(Translated("n or best_of: is 300, the worker runs at most 256 sequences"),
            "--samples or --best-of is 300, the worker runs at most 256 sequences");
  EXPECT_EQ(Translated("text: needs a tokenizer; put tokenizer.json beside the weights"),
            "the prompt needs a tokenizer; put tokenizer.json beside the weights");
}

TEST(OptionNamesTest, TextOfTheUserStays) {
  EXPECT_EQ(Translated(R"(guided.regex: at byte 0, "\"": is "best_of\" cache_salt", see best_of)"),
            R"(--regex: at byte 0, "\"": is "best_of\" cache_salt", see --best-of)");
  EXPECT_EQ(Translated("logit_bias: has no option"), "logit_bias: has no option");
}

// Appends the paths of the fields of a message that are no messages themselves.
void AppendPaths(const google::protobuf::Descriptor& message, const std::string& prefix, std::set<std::string>* paths) {
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    const std::string path = absl::StrCat(prefix, field.name());
    const bool has_parts = field.message_type() != nullptr && !field.is_repeated();
    if (has_parts) {
      AppendPaths(*field.message_type(), path + ".", paths);
    } else {
      paths->insert(path);
    }
  }
}

TEST(OptionNamesTest, EveryFieldThatAnOptionSetsIsNamedByIt) {
  std::set<std::string> paths;
  AppendPaths(*v1::GenerateRequest::descriptor(), "", &paths);
  // quirectl does not set these.
  for (const char* path : {"chat.add_generation_prompt", "chat.continue_final_message", "chat.tools", "continue_from",
                           "continue_numerics", "pins"}) {
    EXPECT_EQ(paths.erase(path), 1u) << path;
  }
  for (const std::string& path : paths) EXPECT_NE(Translated(path + ": is 1"), path + ": is 1") << path;
}

}  // namespace
}  // namespace quire
