// SPDX-License-Identifier: Apache-2.0

#include "base/http_client.h"

#include <curl/curl.h>

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace quire {
namespace {

constexpr size_t kMaxAnswerBytes = 1 << 20;

// Called by libcurl with a part of the answer. Any result but `count` ends the call.
size_t Append(char* data, size_t /*size*/, size_t count, void* body) {
  std::string& text = *static_cast<std::string*>(body);
  if (text.size() + count > kMaxAnswerBytes) return 0;
  text.append(data, count);
  return count;
}

}  // namespace

struct HttpClient::Handle {
  CURL* const curl = curl_easy_init();
};

HttpClient::HttpClient() : handle_(std::make_unique<Handle>()) {
  QUIRE_CHECK(handle_->curl != nullptr);
}

HttpClient::~HttpClient() {
  curl_easy_cleanup(handle_->curl);
}

absl::StatusOr<HttpAnswer> HttpClient::Call(const HttpCall& call) {
  CURL* const curl = handle_->curl;
  curl_easy_reset(curl);  // Connections stay open.
  HttpAnswer answer;
  char error[CURL_ERROR_SIZE] = "";
  curl_slist* headers = nullptr;
  headers = curl_slist_append(headers, "Expect:");  // Send the body at once.
  for (const std::string& header : call.headers) headers = curl_slist_append(headers, header.c_str());
  curl_easy_setopt(curl, CURLOPT_URL, call.url.c_str());
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call.method.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  if (!call.body.empty()) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(call.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call.body.c_str());
  }
  if (!call.authority.empty()) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, call.authority.c_str());
    curl_easy_setopt(curl, CURLOPT_CAPATH, nullptr);  // Not the authorities of the system as well.
  }
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, call.checks_server ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, call.checks_server ? 2L : 0L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(call.timeout)));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");  // Whatever the environment says: the call carries a secret.
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer.body);
  const CURLcode result = curl_easy_perform(curl);
  curl_slist_free_all(headers);
  if (result != CURLE_OK) {
    return absl::UnavailableError(
        absl::StrCat(call.method, " ", call.url, ": ", error[0] == '\0' ? curl_easy_strerror(result) : error));
  }
  long code = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
  answer.code = static_cast<int>(code);
  return answer;
}

}  // namespace quire
