#include "serving/metrics_server.h"

#include <civetweb.h>
#include <zlib.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/listen_address.h"
#include "prometheus/text_serializer.h"

namespace quire {
namespace {

// Each thread serves one connection. There are more threads than requests that may wait for a status page, so that one
// is left for a scrape.
constexpr char kNumThreads[] = "8";
// The time in which a request must arrive, and in which a response must be read.
constexpr char kTimeoutMs[] = "10000";
constexpr size_t kMinGzipBytes = 1024;
// A response shows one moment and is meant for whoever asked. Nobody may cache it, embed it, or run it as a script.
constexpr char kCommonHeaders[] =
    "Cache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Connection: close\r\n";

absl::Status CannotServe(const std::string& address, absl::string_view reason) {
  return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", address, ": ", reason));
}

// Returns an empty string when it fails.
std::string Gzip(const std::string& text) {
  constexpr int kGzipWindow = 15 + 16;  // 16 asks for a gzip header instead of zlib's.
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK) return "";
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const bool is_whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(is_whole ? stream.total_out : 0);
  deflateEnd(&stream);
  return out;
}

std::string Header(const mg_connection* connection, const char* name) {
  const char* const value = mg_get_header(connection, name);
  return value == nullptr ? "" : value;
}

std::string Decode(absl::string_view text) {
  std::string out(text.size() + 1, '\0');
  const int size = mg_url_decode(text.data(), static_cast<int>(text.size()), out.data(), static_cast<int>(out.size()),
                                 /*is_form_url_encoded=*/1);
  out.resize(std::max(size, 0));
  return out;
}

// Reads "a=1&b=2". Civetweb limits the head of a request to 16 KiB.
std::map<std::string, std::string> Parameters(absl::string_view query) {
  std::map<std::string, std::string> parameters;
  for (const absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    parameters.emplace(Decode(sides.first), Decode(sides.second));
  }
  return parameters;
}

bool IsForwarded(const mg_connection* connection) {
  for (const char* name : {"Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"}) {
    if (mg_get_header(connection, name) != nullptr) return true;
  }
  return false;
}

void Send(mg_connection* connection, HttpResponse response, bool is_head) {
  std::string head = absl::StrCat("HTTP/1.1 ", response.code, " ", mg_get_response_code_text(connection, response.code),
                                  "\r\n", kCommonHeaders, "Content-Type: ", response.content_type, "\r\n");
  for (const auto& [name, value] : response.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  if (response.body.size() >= kMinGzipBytes && absl::StrContains(Header(connection, "Accept-Encoding"), "gzip")) {
    if (std::string packed = Gzip(response.body); !packed.empty()) {
      response.body = std::move(packed);
      absl::StrAppend(&head, "Content-Encoding: gzip\r\n");
    }
  }
  absl::StrAppend(&head, "Content-Length: ", response.body.size(), "\r\n\r\n");
  if (!is_head) head += response.body;
  mg_write(connection, head.data(), head.size());
}

}  // namespace

absl::Status MetricsServer::Check(const std::string& address) {
  const absl::Status status = CheckListening(address);
  return status.ok() ? status : CannotServe(address, status.message());
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address) {
  static const unsigned is_initialized = mg_init_library(MG_FEATURES_DEFAULT);
  (void)is_initialized;
  std::unique_ptr<MetricsServer> server(new MetricsServer());
  mg_callbacks callbacks = {};
  callbacks.begin_request = &MetricsServer::OnRequest;
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };  // Not to standard error.
  const char* options[] = {"listening_ports",    address.c_str(), "num_threads", kNumThreads,
                           "request_timeout_ms", kTimeoutMs,      nullptr};
  server->server_ = mg_start(&callbacks, server.get(), options);
  if (server->server_ != nullptr) return server;
  const absl::Status status = CheckListening(address);
  return CannotServe(address, status.ok() ? "it was in use a moment ago" : status.message());
}

MetricsServer::~MetricsServer() {
  if (server_ != nullptr) mg_stop(server_);
}

void MetricsServer::Add(std::shared_ptr<prometheus::Collectable> metrics) {
  const MutexLock lock(&mutex_);
  metrics_.push_back(std::move(metrics));
}

void MetricsServer::AddPage(const std::string& path, HttpPage page) {
  const MutexLock lock(&mutex_);
  pages_[path] = std::move(page);
}

int MetricsServer::port() const {
  mg_server_port port = {};
  return mg_get_server_ports(server_, 1, &port) == 1 ? port.port : 0;
}

int MetricsServer::OnRequest(mg_connection* connection) {
  const mg_request_info& info = *mg_get_request_info(connection);
  const auto& server = *static_cast<const MetricsServer*>(info.user_data);
  const HttpRequest request{
      .parameters = Parameters(info.query_string == nullptr ? "" : info.query_string),
      .is_local_user = IsLocalUser(info.remote_addr, Header(connection, "Host"), IsForwarded(connection))};
  const std::string method = info.request_method == nullptr ? "" : info.request_method;
  HttpResponse response = server.Respond(method, info.local_uri == nullptr ? "" : info.local_uri, request);
  const int code = response.code;
  Send(connection, std::move(response), method == "HEAD");
  return code;
}

HttpResponse MetricsServer::Respond(const std::string& method, const std::string& path,
                                    const HttpRequest& request) const {
  if (method != "GET" && method != "HEAD") {
    return {.code = 405, .body = "this server answers only GET and HEAD\n", .headers = {{"Allow", "GET, HEAD"}}};
  }
  if (path == "/metrics") return Metrics();
  HttpPage page;
  {
    const MutexLock lock(&mutex_);
    const auto it = pages_.find(path);
    if (it != pages_.end()) page = it->second;
  }
  if (page == nullptr) return {.code = 404, .body = "there is no such page here; see /metrics\n"};
  return page(request);
}

HttpResponse MetricsServer::Metrics() const {
  std::vector<std::shared_ptr<prometheus::Collectable>> metrics;
  {
    const MutexLock lock(&mutex_);
    metrics = metrics_;
  }
  std::vector<prometheus::MetricFamily> families;
  for (const auto& source : metrics) {
    std::vector<prometheus::MetricFamily> more = source->Collect();
    families.insert(families.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = prometheus::TextSerializer().Serialize(families)};
}

}  // namespace quire
