// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_SIMULATION_FILES_H_
#define QUIRE_TESTS_CHAOS_SIMULATION_FILES_H_

#include <string>

namespace quire {

// A directory with the key that all managers have, and with the step times of the workers. The destructor removes it.
class SimulationFiles {
 public:
  // `step` is the time of a step, for example "4ms".
  explicit SimulationFiles(const std::string& step);
  ~SimulationFiles();
  SimulationFiles(const SimulationFiles&) = delete;
  SimulationFiles& operator=(const SimulationFiles&) = delete;

  std::string key() const { return path_ + "/key"; }                // For --resume-key-file.
  std::string step_times() const { return path_ + "/step_times"; }  // For --simulated-step-times.

 private:
  std::string path_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_SIMULATION_FILES_H_
