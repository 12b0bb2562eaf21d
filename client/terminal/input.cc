#include "client/terminal/input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/utf8.h"

namespace quire {
namespace {

absl::StatusOr<std::string> ReadStandardInput() {
  std::string text;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) text.append(buffer, n);
  if (std::ferror(stdin)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read standard input: ", std::strerror(errno)));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& argument, const std::string& name) {
  std::string text = argument;
  if (argument == "-") {
    QUIRE_ASSIGN_OR_RETURN(text, ReadStandardInput());
  }
  QUIRE_RETURN_IF_ERROR(CheckUtf8(text, absl::StrCat(name, ":")));
  return text;
}

absl::StatusOr<std::vector<uint32_t>> ReadTokenIds(const std::vector<std::string>& arguments) {
  std::string text = absl::StrJoin(arguments, " ");
  if (text == "-") {
    QUIRE_ASSIGN_OR_RETURN(text, ReadStandardInput());
  }
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
