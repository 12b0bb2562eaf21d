// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_E2E_QUIRECTL_H_
#define QUIRE_TESTS_E2E_QUIRECTL_H_

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"

namespace quire {

// The exit code of a program and its output. Standard output and standard error are joined.
struct Ended {
  int exit_code;
  std::string output;
};

// Runs `quirectl --endpoint ENDPOINT ARGUMENTS`.
Ended Quirectl(const std::string& endpoint, std::vector<std::string> arguments);

// Runs a line of sh, in which "quirectl" talks to `endpoint`.
Ended Shell(const std::string& endpoint, const std::string& line);

// Tests of quirectl that use the shared cluster.
class QuirectlTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = &SharedCluster(); }

  static Ended Quirectl(std::vector<std::string> arguments) {
    return quire::Quirectl(cluster_->endpoint(), std::move(arguments));
  }
  static Ended Shell(const std::string& line) { return quire::Shell(cluster_->endpoint(), line); }

  inline static Cluster* cluster_ = nullptr;
};

}  // namespace quire

#endif  // QUIRE_TESTS_E2E_QUIRECTL_H_
