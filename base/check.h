// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_CHECK_H_
#define QUIRE_BASE_CHECK_H_

#include <sstream>
#include <string>

// QUIRE_CHECK(condition) << "context" ends the process when the condition is false. It is for broken invariants, which
// mean a bug of ours: no input may make a check fail. The forms with two operands print both values.

namespace quire::internal {

// Collects the message of a failed check and aborts when it goes out of scope.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const std::string& condition);
  [[noreturn]] ~CheckFailure();

  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

template <typename A, typename B>
std::string CompareMessage(const char* text, const A& a, const B& b) {
  std::ostringstream out;
  out << text << " (" << a << " vs. " << b << ")";
  return out.str();
}

}  // namespace quire::internal

#define QUIRE_CHECK(condition) \
  while (!(condition)) [[unlikely]] ::quire::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define QUIRE_CHECK_OP(a, op, b)                                                                               \
  while (!((a)op(b)))                                                                                          \
  [[unlikely]] ::quire::internal::CheckFailure(__FILE__, __LINE__,                                             \
                                               ::quire::internal::CompareMessage(#a " " #op " " #b, (a), (b))) \
      .stream()

#define QUIRE_CHECK_EQ(a, b) QUIRE_CHECK_OP(a, ==, b)
#define QUIRE_CHECK_NE(a, b) QUIRE_CHECK_OP(a, !=, b)
#define QUIRE_CHECK_LT(a, b) QUIRE_CHECK_OP(a, <, b)
#define QUIRE_CHECK_LE(a, b) QUIRE_CHECK_OP(a, <=, b)
#define QUIRE_CHECK_GT(a, b) QUIRE_CHECK_OP(a, >, b)
#define QUIRE_CHECK_GE(a, b) QUIRE_CHECK_OP(a, >=, b)

#endif  // QUIRE_BASE_CHECK_H_
