// SPDX-License-Identifier: Apache-2.0

#include "client/terminal/input.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/utf8.h"
#include "google/protobuf/util/json_util.h"
#include "quire/v1/inference.pb.h"

namespace quire {
namespace {

// Reads to the end. `name` is what a user at a terminal is asked for.
absl::StatusOr<std::string> ReadStandardInput(const std::string& name) {
  if (isatty(STDIN_FILENO)) {
    std::fprintf(stderr, "reading the %s from standard input; end it with Ctrl-D\n", name.c_str());
  }
  std::string text;
  char buffer[1 << 16];
  // glibc's fread would ask a terminal again after its end.
  while (!std::feof(stdin) && !std::ferror(stdin)) {
    text.append(buffer, std::fread(buffer, 1, sizeof buffer, stdin));
  }
  if (std::ferror(stdin)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read standard input: ", std::strerror(errno)));
  }
  return text;
}

// Returns the ids in the output of `quirectl tokenize -o json`.
absl::StatusOr<std::vector<uint32_t>> ReadJson(const std::string& json) {
  v1::TokenizeResponse tokens;
  if (const auto status = google::protobuf::util::JsonStringToMessage(json, &tokens); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ids: not the JSON of `quirectl tokenize -o json`: ", std::string(status.message())));
  }
  if (tokens.token_ids().empty()) return absl::InvalidArgumentError("ids: there is none");
  return std::vector<uint32_t>(tokens.token_ids().begin(), tokens.token_ids().end());
}

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& argument, const std::string& name) {
  std::string text = argument;
  if (argument == "-") {
    QUIRE_ASSIGN_OR_RETURN(text, ReadStandardInput(name));
  }
  QUIRE_RETURN_IF_ERROR(CheckUtf8(text, absl::StrCat(name, ":")));
  return text;
}

absl::StatusOr<std::vector<uint32_t>> ReadTokenIds(const std::vector<std::string>& arguments) {
  std::string text = absl::StrJoin(arguments, " ");
  if (text == "-") {
    QUIRE_ASSIGN_OR_RETURN(text, ReadStandardInput("ids"));
  }
  if (absl::StartsWith(text, "{")) return ReadJson(text);
  std::vector<uint32_t> ids;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(", \t\r\n"), absl::SkipEmpty())) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(word, &id)) {
      return absl::InvalidArgumentError(absl::StrCat("ids: \"", word, "\" is not a token id"));
    }
    ids.push_back(id);
  }
  if (ids.empty()) return absl::InvalidArgumentError("ids: there is none");
  return ids;
}

}  // namespace quire
