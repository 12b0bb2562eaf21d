// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_formats.h"

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace quire::grammar {
namespace {

using Formats = std::map<std::string, SchemaFormat, std::less<>>;

// Days that only some Februaries have are left out.
constexpr char kDate[] =
    R"([0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31))";
constexpr char kTime[] =
    R"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
// A label has at most 62 characters, and a name at most 213. A name ends with letters, so that it is no address.
constexpr char kHostname[] = R"(([A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){0,2}\.){0,3}[A-Za-z]{2,24})";

// The notation of RFC 3339, where no unit between two others is left out.
std::string Duration() {
  const std::string time = "T([0-9]{1,4}H([0-9]{1,4}M([0-9]{1,4}S)?)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S)";
  const std::string date = "([0-9]{1,4}D|[0-9]{1,4}M([0-9]{1,4}D)?|[0-9]{1,4}Y([0-9]{1,4}M([0-9]{1,4}D)?)?)";
  return "P(" + date + "(" + time + ")?|" + time + "|[0-9]{1,4}W)";
}

std::string Ipv6() {
  const std::string group = "[0-9a-f]{1,4}";
  const std::string before = "(" + group + ":)";
  const std::string after = "(:" + group + ")";
  std::string regex = before + "{7}" + group;
  // "::" stands for at least one group.
  for (int num_before = 1; num_before <= 6; ++num_before) {
    const std::string most_after = std::to_string(7 - num_before);
    regex += "|" + before + "{" + std::to_string(num_before) + "}" + after + "{1," + most_after + "}";
  }
  return regex + "|" + before + "{1,7}:|:(" + after + "{1,7}|:)";
}

std::string Email() {
  const std::string atom = "[A-Za-z0-9_+-]{1,32}";
  const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?";
  return atom + R"((\.)" + atom + "){0,3}@" + label + R"((\.)" + label + "){1,4}";
}

// Addresses of the web, with escapes in the query only.
std::string Uri() {
  const std::string plain = "[A-Za-z0-9._~!$&'()*+,;=:@-]";
  return std::string("https?://") + kHostname + "(:[1-9][0-9]{0,3})?(/" + plain +
         R"({0,150}){0,8}(\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-F]{2}){0,200})?(#)" + plain + "{0,40})?";
}

}  // namespace

const SchemaFormat* FindSchemaFormat(std::string_view name) {
  static const auto* formats = [] {
    const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    auto* const all = new Formats{
        {"date", {kDate, 10, 10}},
        {"time", {kTime, 9, 24}},
        {"date-time", {std::string(kDate) + "T" + kTime, 20, 35}},
        {"duration", {Duration(), 3, 32}},
        {"uuid", {"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", 36, 36}},
        {"ipv4", {"(" + byte + R"(\.){3})" + byte, 7, 15}},
        {"ipv6", {Ipv6(), 2, 39}},
        {"hostname", {kHostname, 2, 213}},
        {"email", {Email(), 5, 296}},
        {"uri", {Uri(), 9, 2076}},
    };
    for (const char version : std::string_view("12345678")) {  // As pydantic writes them.
      const std::string text = absl::StrCat("[0-9a-f]{8}-[0-9a-f]{4}-", std::string(1, version),
                                            "[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
      all->insert({absl::StrCat("uuid", std::string(1, version)), {text, 36, 36}});
    }
    return all;
  }();
  const auto found = formats->find(name);
  return found == formats->end() ? nullptr : &found->second;
}

}  // namespace quire::grammar
