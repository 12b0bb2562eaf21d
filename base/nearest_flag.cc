// SPDX-License-Identifier: Apache-2.0

#include "base/nearest_flag.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/nearest_name.h"

namespace quire {
namespace {

// Each line has the names that programs give to one thing. The names `host` and `port` are from other servers.
constexpr absl::string_view kSynonyms[] = {
    "listen host port",
    "endpoint manager host port",
    "tls_ca manager_tls_ca worker_tls_ca",
    "tls_cert manager_tls_cert worker_tls_cert",
    "tls_key manager_tls_key worker_tls_key",
    "tls_name manager_name worker_name manager_tls_name worker_tls_name",
    "rpc_timeout call_timeout",
    "timeout request_timeout",
};

// Returns the name as in kSynonyms.
std::string Plain(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(absl::StripPrefix(name, "--"), {{"-", "_"}}));
}

}  // namespace

std::string NearestFlag(absl::string_view typed, const std::vector<std::string>& known) {
  const std::string name = Plain(typed);
  for (const absl::string_view line : kSynonyms) {
    const std::vector<absl::string_view> synonyms = absl::StrSplit(line, ' ');
    const auto is_synonym = [&](const std::string& flag) {
      return std::find(synonyms.begin(), synonyms.end(), Plain(flag)) != synonyms.end();
    };
    if (!is_synonym(name)) continue;
    const auto flag = std::find_if(known.begin(), known.end(), is_synonym);
    if (flag != known.end()) return *flag;
  }
  return NearestName(typed, known);
}

}  // namespace quire
