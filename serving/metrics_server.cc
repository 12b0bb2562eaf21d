// SPDX-License-Identifier: Apache-2.0

#include "serving/metrics_server.h"

#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <iterator>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "prometheus/text_serializer.h"
#include "serving/http_head.h"
#include "serving/web_rules.h"

namespace quire {
namespace {

// There are more connections than requests that may wait for a status page, so that one is left for a scrape.
constexpr int kMaxConnections = 64;
// A browser opens up to six.
constexpr int kMaxConnectionsPerAddress = 16;
constexpr std::chrono::seconds kHeadTimeout(5);       // In which the head of a request must arrive.
constexpr std::chrono::seconds kResponseTimeout(10);  // In which a response must be read.
constexpr std::chrono::seconds kFinishTimeout(1);
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

bool IsForwarded(const HttpHead& head) {
  for (const char* name : {"forwarded", "x-forwarded-for", "x-real-ip", "via"}) {
    if (head.Has(name)) return true;
  }
  return false;
}

// Returns the text of a response. With `is_head` it has no body.
std::string Render(HttpResponse response, bool takes_gzip, bool is_head) {
  std::string text = absl::StrCat("HTTP/1.1 ", response.code, " ", HttpReason(response.code), "\r\n", kCommonHeaders,
                                  "Content-Type: ", response.content_type, "\r\n");
  for (const auto& [name, value] : response.headers) absl::StrAppend(&text, name, ": ", value, "\r\n");
  if (response.body.size() >= kMinGzipBytes && takes_gzip) {
    if (std::string packed = Gzip(response.body); !packed.empty()) {
      response.body = std::move(packed);
      absl::StrAppend(&text, "Content-Encoding: gzip\r\n");
    }
  }
  absl::StrAppend(&text, "Content-Length: ", response.body.size(), "\r\n\r\n");
  if (!is_head) text += response.body;
  return text;
}

// Says why a head could not be read.
HttpRefusal RefusalOf(const absl::Status& status) {
  const int code = absl::IsDeadlineExceeded(status) ? 408 : absl::IsResourceExhausted(status) ? 431 : 400;
  return {code, std::string(status.message())};
}

HttpResponse Refused(const HttpRefusal& refusal) {
  return {.code = refusal.code, .body = absl::StrCat(refusal.message, "\n")};
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address, WebAccess access) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(access)));
  const AcceptorOptions options{
      .port = "metrics_listen", .max_connections = kMaxConnections, .max_per_address = kMaxConnectionsPerAddress};
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Start(
      address, options, [self = server.get()](int fd, const std::string& peer) { self->Take(fd, peer); });
  if (!acceptor.ok()) return CannotServe(address, acceptor.status().message());
  server->acceptor_ = *std::move(acceptor);
  return server;
}

MetricsServer::~MetricsServer() {
  if (acceptor_ != nullptr) acceptor_->Stop();
  const MutexLock lock(&mutex_);
  for (const int fd : open_) shutdown(fd, SHUT_RDWR);  // Ends the waiting for clients.
  while (!open_.empty()) ended_.Wait(&mutex_);
}

void MetricsServer::Add(std::shared_ptr<prometheus::Collectable> metrics) {
  const MutexLock lock(&mutex_);
  metrics_.push_back(std::move(metrics));
}

void MetricsServer::AddPage(const std::string& path, HttpPage page) {
  const MutexLock lock(&mutex_);
  pages_[path] = std::move(page);
}

void MetricsServer::Take(int fd, const std::string& peer) {
  {
    const MutexLock lock(&mutex_);
    open_.insert(fd);
  }
  try {
    std::thread([this, fd, peer] { Serve(fd, peer); }).detach();
  } catch (const std::system_error& error) {  // The system has no thread for us.
    QUIRE_LOG(kWarning) << "a request for metrics was refused: " << error.what();
    const MutexLock lock(&mutex_);
    open_.erase(fd);
    close(fd);
  }
}

void MetricsServer::Serve(int fd, const std::string& peer) {
  HttpConnection connection(fd);
  const absl::StatusOr<std::string> text = connection.ReadHead(kHeadTimeout);
  if (!absl::IsUnavailable(text.status())) {
    const std::variant<HttpHead, HttpRefusal> read = text.ok() ? ReadHttpHead(*text) : RefusalOf(text.status());
    const auto* const head = std::get_if<HttpHead>(&read);
    HttpResponse response = head != nullptr ? Respond(*head, peer) : Refused(std::get<HttpRefusal>(read));
    const bool takes_gzip = head != nullptr && absl::StrContains(head->Header("accept-encoding"), "gzip");
    const bool is_head = text.ok() && IsHeadRequest(*text);
    connection.Write(Render(std::move(response), takes_gzip, is_head), kResponseTimeout);
    connection.Finish(kFinishTimeout);
  }
  const MutexLock lock(&mutex_);
  open_.erase(fd);
  connection.Close();
  ended_.NotifyAll();
}

HttpResponse MetricsServer::Respond(const HttpHead& head, const std::string& peer) const {
  if (const auto refusal = CheckWebRules(head, access_, /*has_tls=*/false)) return Refused(*refusal);
  if (head.method != "GET" && head.method != "HEAD") {
    return {.code = 405, .body = "this server answers only GET and HEAD\n", .headers = {{"Allow", "GET, HEAD"}}};
  }
  const std::string path = DecodedPath(head.path);
  if (path == "/metrics") return Metrics();
  HttpPage page;
  {
    const MutexLock lock(&mutex_);
    const auto it = pages_.find(path);
    if (it != pages_.end()) page = it->second;
  }
  if (page == nullptr) return {.code = 404, .body = "there is no such page here; see /metrics\n"};
  return page(
      {.parameters = QueryParameters(head.query), .is_local_user = IsLocalUser(peer, head.host, IsForwarded(head))});
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
