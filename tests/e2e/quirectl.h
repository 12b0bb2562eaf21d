#ifndef QUIRE_TESTS_E2E_QUIRECTL_H_
#define QUIRE_TESTS_E2E_QUIRECTL_H_

#include <string>
#include <vector>

namespace quire {

// How a program ended and what it printed, standard output and standard error joined.
struct Ended {
  int exit_code;
  std::string output;
};

// Runs `quirectl --endpoint ENDPOINT ARGUMENTS`.
Ended Quirectl(const std::string& endpoint, std::vector<std::string> arguments);

// Runs a line of sh, in which "quirectl" talks to `endpoint`.
Ended Shell(const std::string& endpoint, const std::string& line);

}  // namespace quire

#endif  // QUIRE_TESTS_E2E_QUIRECTL_H_
