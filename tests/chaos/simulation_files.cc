// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/simulation_files.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/check.h"

namespace quire {

SimulationFiles::SimulationFiles(const std::string& step) {
  char path[] = "/tmp/quire-chaos.XXXXXX";
  QUIRE_CHECK(mkdtemp(path) != nullptr);
  path_ = path;
  std::ofstream(key()) << std::string(40, 'k');
  std::ofstream(step_times()) << "step: " << step << "\nprefill_token: 100us\n";
}

SimulationFiles::~SimulationFiles() {
  std::filesystem::remove_all(path_);
}

}  // namespace quire
