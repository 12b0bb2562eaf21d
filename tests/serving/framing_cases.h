// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SERVING_FRAMING_CASES_H_
#define QUIRE_TESTS_SERVING_FRAMING_CASES_H_

#include <string>
#include <vector>

namespace quire {

// A request as bytes, and what a server of HTTP/1 must make of it. Every server of ours is tried with all of them, by
// socket. When a request is refused, the server must not read on behind it.
struct FramingCase {
  std::string request;
  // The code of the refusal; 0 if the request is served and the next one after it; 1 if the connection then ends.
  int code;
};

inline constexpr int kServed = 0;
inline constexpr int kServedAndClosed = 1;

inline std::vector<FramingCase> FramingCases() {
  const std::string get = "GET / HTTP/1.1\r\n";
  const std::string host = "Host: h\r\n";
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string end = "\r\n";
  const std::string nul(1, '\0');
  return {
      // The first line.
      {"GET  / HTTP/1.1\r\n" + host + end, 400},
      {"GET / HTTP/1.1 \r\n" + host + end, 400},
      {" GET / HTTP/1.1\r\n" + host + end, 400},
      {"GET\t/ HTTP/1.1\r\n" + host + end, 400},
      {"GET /\r\n" + host + end, 400},
      {"GET / x HTTP/1.1\r\n" + host + end, 400},
      {"G(T / HTTP/1.1\r\n" + host + end, 400},
      {"GET / http/1.1\r\n" + host + end, 400},
      {"GET / HTTP/1.2\r\n" + host + end, 505},
      {"GET / HTTP/1.10\r\n" + host + end, 505},
      {"GET / HTTP/2.0\r\n" + host + end, 505},
      {"GET / HTTP/0.9\r\n" + host + end, 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"\x16\x03\x01\x02" + nul + "\r\n\r\n", 400},
      {"\r\n\r\n" + get + host + end, 400},
      {"\r\n" + get + host + end, kServed},
      // The target.
      {"GET path HTTP/1.1\r\n" + host + end, 400},
      {"GET * HTTP/1.1\r\n" + host + end, 400},
      {"GET /#a HTTP/1.1\r\n" + host + end, 400},
      {"GET /\x01 HTTP/1.1\r\n" + host + end, 400},
      {"GET ftp://h/ HTTP/1.1\r\n" + host + end, 400},
      {"GET http:///a HTTP/1.1\r\n" + host + end, 400},
      {"GET http://user@h/ HTTP/1.1\r\n" + host + end, 400},
      {"GET http://h:1:2/ HTTP/1.1\r\n" + host + end, 400},
      {"GET http://h/ HTTP/1.1\r\n\r\n", 400},
      {"CONNECT h:80 HTTP/1.1\r\n" + host + end, 501},
      {"GET http://h/ HTTP/1.1\r\n" + host + end, kServed},
      {"GET HTTPS://h HTTP/1.1\r\nHost: other\r\n\r\n", kServed},
      {"GET http://[::1]:80/?a=b HTTP/1.1\r\n" + host + end, kServed},
      {"GET /?a?b/c HTTP/1.1\r\n" + host + end, kServed},
      // Host.
      {get + end, 400},
      {get + host + host + end, 400},
      {get + "Host: a\r\nhOST: b\r\n\r\n", 400},
      {get + "Host: a b\r\n\r\n", 400},
      {get + "Host: a, b\r\n\r\n", 400},
      {get + "Host: a/b\r\n\r\n", 400},
      {get + "Host: user@a\r\n\r\n", 400},
      {get + "Host: a:b\r\n\r\n", 400},
      {get + "Host: [::1\r\n\r\n", 400},
      {get + "Host: :80\r\n\r\n", 400},
      {"GET / HTTP/1.0\r\n" + host + host + end, 400},
      {"GET / HTTP/1.0\r\n\r\n", kServedAndClosed},
      {"GET / HTTP/1.0\r\nConnection: close, keep-alive\r\n\r\n", kServedAndClosed},
      {get + "Host:\r\n\r\n", kServed},
      {get + "Host: [::1]:80\r\n\r\n", kServed},
      // Other headers.
      {get + host + "A : b\r\n\r\n", 400},
      {get + host + "A\t: b\r\n\r\n", 400},
      {get + host + ": b\r\n\r\n", 400},
      {get + host + "a b: c\r\n\r\n", 400},
      {get + host + "a\r\n\r\n", 400},
      {get + host + "A: b\r\n c\r\n\r\n", 400},
      {get + host + "A: b\r\n\tc\r\n\r\n", 400},
      {get + " A: b\r\n" + host + end, 400},
      {get + host + "A: b\nC: d\r\n\r\n", 400},
      {get + host + "A: b\rC: d\r\n\r\n", 400},
      {get + host + "A: b\r\r\n\r\n", 400},
      {get + host + "A: " + nul + "\r\n\r\n", 400},
      {get + host + "A: \x7F\r\n\r\n", 400},
      {get + host + "A" + nul + ": b\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: h\n\n", 400},
      {get + host + "\n", 400},
      {get + host + "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400},
      {get + host + "Origin: http://h\r\nOrigin: http://evil.example\r\n\r\n", 400},
      {get + host + "Expect: tea\r\n\r\n", 417},
      {get + host + "A:b\r\nC: \t d \t\r\nE:\r\nF: \xC3\xA4\r\n\r\n", kServed},
      {get + host + "Connection: close\r\n\r\n", kServedAndClosed},
      {get + host + "Connection: x\r\nConnection: y, CLOSE\r\n\r\n", kServedAndClosed},
      {"GET / HTTP/1.0\r\nExpect: tea\r\n\r\n", kServedAndClosed},
      // Content-Length.
      {post + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab", 400},
      {post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nab", 400},
      {post + "Content-Length: 2, 2\r\n\r\nab", 400},
      {post + "Content-Length: +2\r\n\r\nab", 400},
      {post + "Content-Length: -2\r\n\r\nab", 400},
      {post + "Content-Length: 0x2\r\n\r\nab", 400},
      {post + "Content-Length: 2 2\r\n\r\nab", 400},
      {post + "Content-Length: 2.0\r\n\r\nab", 400},
      {post + "Content-Length:\r\n\r\nab", 400},
      {post + "Content-Length : 2\r\n\r\nab", 400},
      {post + "Content-Length: 99999999999999999999\r\n\r\nab", 413},
      {post + "Content-Length: 18446744073709551618\r\n\r\nab", 413},
      // Transfer-Encoding.
      {post + "Transfer-Encoding: identity\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked, identity\r\n\r\n", 400},
      {post + "Transfer-Encoding: xchunked\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked;a=b\r\n\r\n", 400},
      {post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding:\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {post + "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n", 501},
      {post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501},
      {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
      {post + "Content-Length: 5\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\x0B\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
  };
}

// Those whose head is right. A server that reads no bodies does not see what is wrong with them.
inline std::vector<FramingCase> BodyCases() {
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string nul(1, '\0');
  return {
      {post + "\r\n", kServed},
      {post + "Content-Length: 0\r\n\r\n", kServed},
      {post + "Content-Length: 002\r\n\r\nab", kServed},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab", kServed},
      {"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab", kServedAndClosed},
      {chunked + "0\r\n\r\n", kServed},
      {post + "Transfer-Encoding: \t CHUNKED \r\n\r\n0\r\n\r\n", kServed},
      {chunked + "2\r\nab\r\n000\r\n\r\n", kServed},
      {chunked + "2;name=\"value\"\r\nab\r\n0;a\r\nTrailer: x\r\nOther:\r\n\r\n", kServed},
      {chunked + "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", kServed},
      {chunked + "2 \r\nab\r\n0\r\n\r\n", 400},
      {chunked + " 2\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "2\t;a\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "+2\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "-2\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "0x2\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "2,2\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "zz\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "\r\nab\r\n0\r\n\r\n", 400},
      {chunked + ";a\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "2\nab\r\n0\r\n\r\n", 400},
      {chunked + "2\r\nab\n0\r\n\r\n", 400},
      {chunked + "2\r\nabc\r\n0\r\n\r\n", 400},
      {chunked + "2\r\nab0\r\n\r\n", 400},
      {chunked + "2;a\rb\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "2;a" + nul + "\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "10000000000000002\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "00000000000000002\r\nab\r\n0\r\n\r\n", 400},
      {chunked + "fffffffffffffff\r\nab\r\n0\r\n\r\n", 413},
      {chunked + "0\r\nTrailer\r\n\r\n", 400},
      {chunked + "0\r\nTrailer : x\r\n\r\n", 400},
      {chunked + "0\r\n folded\r\n\r\n", 400},
      {chunked + "0\r\nA: b\nC: d\r\n\r\n", 400},
      {chunked + "0\r\n\n", 400},
      {chunked + "2;" + std::string(5'000, 'a') + "\r\nab\r\n0\r\n\r\n", 400},
  };
}

}  // namespace quire

#endif  // QUIRE_TESTS_SERVING_FRAMING_CASES_H_
