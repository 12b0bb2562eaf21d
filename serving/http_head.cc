// SPDX-License-Identifier: Apache-2.0

#include "serving/http_head.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/number_text.h"

namespace quire {
namespace {

constexpr size_t kMaxShownBytes = 40;
// More digits could not be a size.
constexpr size_t kMaxLengthDigits = 18;
// A request has each of these at most once. Two would mean one thing to this server and another to a proxy.
constexpr const char* kSingleHeaders[] = {
    "host",   "content-length", "transfer-encoding", "authorization",  "content-type",  "expect",
    "origin", "sec-fetch-site", "last-event-id",     "sec-fetch-mode", "sec-fetch-dest"};

HttpRefusal NotHttp(absl::string_view reason, int code = 400) {
  return {code, absl::StrCat("this is not a request of HTTP/1: ", reason)};
}

std::string Shown(absl::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text.substr(0, kMaxShownBytes)), "\"");
}

bool IsTokenChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("!#$%&'*+-.^_`|~", c);
}

bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7F;
}

// Removes the whitespace that may stand around values.
absl::string_view Trimmed(absl::string_view text) {
  while (!text.empty() && absl::StrContains(" \t", text.front())) text.remove_prefix(1);
  while (!text.empty() && absl::StrContains(" \t", text.back())) text.remove_suffix(1);
  return text;
}

bool IsDigits(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns whether the text is a host, and maybe a port: a name, an IPv4 address, or an IPv6 address in brackets.
bool IsAuthority(absl::string_view text) {
  size_t end;
  if (absl::StartsWith(text, "[")) {
    end = text.find(']');
    if (end == text.npos) return false;
    const absl::string_view inner = text.substr(1, end - 1);
    if (inner.empty() || inner.find_first_not_of("0123456789abcdefABCDEF:.") != inner.npos) return false;
    ++end;
  } else {
    end = std::min(text.find(':'), text.size());
    const absl::string_view name = text.substr(0, end);
    if (name.empty() || !std::all_of(name.begin(), name.end(), [](char c) {
          return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-._~%", c);
        })) {
      return false;
    }
  }
  const absl::string_view port = text.substr(end);
  return port.empty() || (port[0] == ':' && port.size() <= 6 && IsDigits(port.substr(1)));
}

// Reads the target of the request line into the path, the query and, if it names one, the host.
std::optional<HttpRefusal> ReadTarget(absl::string_view target, HttpHead* head) {
  if (target.empty() || std::any_of(target.begin(), target.end(), IsControl)) {
    return NotHttp(absl::StrCat("the target is ", Shown(target)));
  }
  if (absl::StrContains(target, '#')) {
    return NotHttp(absl::StrCat("the target ", Shown(target), " has the character #, for which it must have %23"));
  }
  if (target == "*") {
    if (head->method != "OPTIONS") return NotHttp(absl::StrCat("the target * is for OPTIONS, not ", head->method));
    head->path = std::string(target);
    return std::nullopt;
  }
  if (target[0] != '/') {
    const size_t scheme = absl::StartsWithIgnoreCase(target, "http://")    ? 7
                          : absl::StartsWithIgnoreCase(target, "https://") ? 8
                                                                           : 0;
    if (scheme == 0) return NotHttp(absl::StrCat("the target ", Shown(target), " does not begin with /"));
    target.remove_prefix(scheme);
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    head->host = std::string(target.substr(0, end));
    if (!IsAuthority(head->host)) return NotHttp(absl::StrCat("the target has the host ", Shown(head->host)));
    target.remove_prefix(end);
  }
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(target, absl::MaxSplits('?', 1));
  head->path = std::string(parts.first.empty() ? "/" : parts.first);
  head->query = std::string(parts.second);
  return std::nullopt;
}

std::optional<HttpRefusal> ReadRequestLine(absl::string_view line, HttpHead* head) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, ' ');
  if (parts.size() != 3 || !IsToken(parts[0])) {
    return NotHttp(absl::StrCat("the first line is ", Shown(line), ", it must be METHOD TARGET HTTP/1.1"));
  }
  if (parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0") {
    const bool is_http = absl::StartsWith(parts[2], "HTTP/");
    return NotHttp(absl::StrCat("the version is ", Shown(parts[2]), ", it must be HTTP/1.1 or HTTP/1.0"),
                   is_http ? 505 : 400);
  }
  head->method = std::string(parts[0]);
  head->minor_version = parts[2].back() - '0';
  if (head->method == "CONNECT") return HttpRefusal{501, "the method CONNECT is for proxies, and this is none"};
  return ReadTarget(parts[1], head);
}

std::optional<HttpRefusal> ReadHost(HttpHead* head) {
  if (!head->Has("host")) {
    if (head->minor_version == 0) return std::nullopt;
    return NotHttp("the header Host is missing");
  }
  const absl::string_view host = head->Header("host");
  if (!host.empty() && !IsAuthority(host)) return NotHttp(absl::StrCat("the header Host is ", Shown(host)));
  if (head->host.empty()) head->host = std::string(host);  // A host in the target counts more (RFC 9112, 3.2.2).
  return std::nullopt;
}

// Reads how the body is framed.
std::optional<HttpRefusal> ReadFraming(HttpHead* head) {
  if (head->Has("transfer-encoding")) {
    const absl::string_view coding = head->Header("transfer-encoding");
    if (head->minor_version == 0) return NotHttp("HTTP/1.0 has no Transfer-Encoding");
    if (head->Has("content-length")) return NotHttp("it has both Transfer-Encoding and Content-Length");
    if (!absl::EqualsIgnoreCase(coding, "chunked")) {
      const bool is_framed = absl::EqualsIgnoreCase(coding.substr(coding.find_last_of(", \t") + 1), "chunked");
      return HttpRefusal{is_framed ? 501 : 400,
                         absl::StrCat("the header Transfer-Encoding is ", Shown(coding), ", it must be chunked")};
    }
    head->is_chunked = true;
  }
  if (head->Has("content-length")) {
    const absl::string_view length = head->Header("content-length");
    uint64_t value;
    if (length.empty() || !IsDigits(length)) return NotHttp(absl::StrCat("Content-Length is ", Shown(length)));
    if (length.size() > kMaxLengthDigits || !absl::SimpleAtoi(length, &value)) {
      return HttpRefusal{413, absl::StrCat("Content-Length is ", Shown(length), ", which is too large")};
    }
    head->content_length = value;
  }
  return std::nullopt;
}

// Reads the headers Connection, of which there may be several, and Expect.
std::optional<HttpRefusal> ReadWishes(HttpHead* head) {
  bool has_close = false;
  bool has_keep_alive = false;
  for (const auto& [name, value] : head->headers) {
    if (name != "connection") continue;
    for (const absl::string_view part : absl::StrSplit(value, ',')) {
      const absl::string_view option = Trimmed(part);
      has_close = has_close || absl::EqualsIgnoreCase(option, "close");
      has_keep_alive = has_keep_alive || absl::EqualsIgnoreCase(option, "keep-alive");
    }
  }
  head->keeps_alive = !has_close && (head->minor_version > 0 || has_keep_alive);
  if (head->minor_version == 0 || !head->Has("expect")) return std::nullopt;
  const absl::string_view expected = head->Header("expect");
  if (!absl::EqualsIgnoreCase(expected, "100-continue")) {
    return HttpRefusal{417, absl::StrCat("the header Expect is ", Shown(expected), ", it must be 100-continue")};
  }
  head->expects_continue = true;
  return std::nullopt;
}

// Decodes %41, and in a form also '+'.
std::string Decode(absl::string_view text, bool is_form) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool may_be_escape = text[i] == '%' && i + 2 < text.size();
    if (may_be_escape && HexValue(text[i + 1]) >= 0 && HexValue(text[i + 2]) >= 0) {
      out += static_cast<char>(16 * HexValue(text[i + 1]) + HexValue(text[i + 2]));
      i += 2;
    } else {
      out += is_form && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

}  // namespace

bool HttpHead::Has(absl::string_view name) const {
  return std::any_of(headers.begin(), headers.end(), [&](const auto& header) { return header.first == name; });
}

absl::string_view HttpHead::Header(absl::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "";
}

std::variant<std::optional<size_t>, HttpRefusal> FindHeadEnd(absl::string_view text, size_t num_searched) {
  // The last byte may be a CR, which was not judged before.
  for (size_t i = num_searched == 0 ? 0 : num_searched - 1; i < text.size(); ++i) {
    const char c = text[i];
    const bool follows_cr = i > 0 && text[i - 1] == '\r';
    if (c == '\n') {
      if (!follows_cr) return NotHttp("a line ends without CR");
      if (i >= 3 && text.substr(i - 3, 4) == "\r\n\r\n") return i + 1;
    } else if (follows_cr) {
      return NotHttp("a CR is not followed by LF");
    } else if (c != '\r' && c != '\t' && IsControl(c)) {
      return NotHttp("it has a control character");
    }
  }
  return std::nullopt;
}

bool IsHeadRequest(absl::string_view text) {
  absl::ConsumePrefix(&text, "\r\n");
  return absl::StartsWith(text, "HEAD ");
}

std::optional<std::string> ReadHeaderLine(absl::string_view line, absl::string_view* name, absl::string_view* value) {
  if (absl::StartsWith(line, " ") || absl::StartsWith(line, "\t")) return "a header continues on the next line";
  const size_t colon = line.find(':');
  if (colon == line.npos || !IsToken(line.substr(0, colon))) {
    return absl::StrCat("a header is ", Shown(line), ", it must be NAME: VALUE");
  }
  const absl::string_view text = Trimmed(line.substr(colon + 1));
  if (std::any_of(text.begin(), text.end(), [](char c) { return c != '\t' && IsControl(c); })) {
    return "a header has a control character";
  }
  if (name != nullptr) *name = line.substr(0, colon);
  if (value != nullptr) *value = text;
  return std::nullopt;
}

std::variant<HttpHead, HttpRefusal> ReadHttpHead(absl::string_view text) {
  absl::ConsumeSuffix(&text, "\r\n\r\n");
  absl::ConsumePrefix(&text, "\r\n");  // Some clients send an empty line behind a body (RFC 9112, 2.2).
  const std::vector<absl::string_view> lines = absl::StrSplit(text, "\r\n");
  HttpHead head;
  if (auto refusal = ReadRequestLine(lines[0], &head)) return *std::move(refusal);
  for (size_t i = 1; i < lines.size(); ++i) {
    absl::string_view name;
    absl::string_view value;
    if (const auto reason = ReadHeaderLine(lines[i], &name, &value)) return NotHttp(*reason);
    head.headers.emplace_back(absl::AsciiStrToLower(name), value);
  }
  for (const char* name : kSingleHeaders) {
    if (std::count_if(head.headers.begin(), head.headers.end(), [&](const auto& it) { return it.first == name; }) > 1) {
      return NotHttp(absl::StrCat("the header ", name, " is there twice"));
    }
  }
  for (const auto& read : {ReadHost, ReadFraming, ReadWishes}) {
    if (auto refusal = read(&head)) return *std::move(refusal);
  }
  return head;
}

const char* HttpReason(int code) {
  static constexpr std::pair<int, const char*> kReasons[] = {
      {200, "OK"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
  };
  for (const auto& [known, reason] : kReasons) {
    if (known == code) return reason;
  }
  return "Error";
}

std::string DecodedPath(absl::string_view path) {
  return Decode(path, false);
}

std::map<std::string, std::string> QueryParameters(absl::string_view query) {
  std::map<std::string, std::string> parameters;
  for (const absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    parameters.emplace(Decode(sides.first, true), Decode(sides.second, true));
  }
  return parameters;
}

}  // namespace quire
