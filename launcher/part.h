// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_LAUNCHER_PART_H_
#define QUIRE_LAUNCHER_PART_H_

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/child_process.h"
#include "launcher/serve_options.h"

namespace quire {

// One of the programs of `quire serve`, with what it has said about itself. What it prints goes to a log; lines that
// matter to a user go to standard error, too. Used by one thread.
class Part {
 public:
  // The program is in `bin`, and its log will be in `folder`.
  Part(PartId id, const std::string& bin, const std::string& folder);

  // Adds a flag that counts unless Check is called with another value for it.
  void SetDefault(const std::string& flag) { flags_.push_back(flag); }

  // Adds the flags of the user, and lets the program check all of them without starting. Returns its error, with flags
  // as the user writes them.
  absl::Status Check(const std::vector<PartFlag>& flags);

  // Returns the value that a flag has, wherever it comes from. REQUIRES: Check has returned OK.
  const std::string& Value(const std::string& flag) const;

  // Starts the program with the flags, and with `more`, which override them.
  void Start(const std::vector<std::string>& more = {});

  // Reads what the program has printed. Does not wait.
  void Read();

  bool is_started() const { return process_ != nullptr; }
  int fd() const { return is_started() ? process_->fd() : -1; }
  bool HasEnded() const { return is_started() && process_->HasEnded(); }
  void Signal(int signal) { process_->Signal(signal); }

  // Where the program listens. Empty until it does.
  const std::string& address() const { return address_; }
  // Empty until it is known.
  const std::string& metrics_port() const { return metrics_port_; }

  // The manager's warning that it cannot use the worker. Empty if there is none.
  const std::string& refusal() const { return refusal_; }

  // How long a stop may take.
  absl::Duration StopTime() const;

  // Says in one line why the program has ended: its error if it has printed one, with INVALID_ARGUMENT for wrong flags
  // and otherwise UNAVAILABLE. INTERNAL means that it has not said why. REQUIRES: HasEnded().
  absl::Status WhyItEnded() const;

  const char* name() const { return kPartNames[id_].name; }

 private:
  void Take(const std::string& line);
  void WriteLog(const std::string& line);
  std::vector<std::string> Command(const std::vector<std::string>& more) const;
  std::string ForUser(absl::string_view error) const;

  const PartId id_;
  const std::string path_;  // Path of the program.
  const std::string log_path_;
  std::vector<std::string> flags_;
  std::vector<PartFlag> user_flags_;
  std::map<std::string, std::string> values_;  // Of all flags, by names such as "kv_bytes".
  std::unique_ptr<ChildProcess> process_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> log_{nullptr, &std::fclose};
  size_t log_bytes_ = 0;
  std::string address_;
  std::string metrics_port_;
  std::string refusal_;
  std::string last_line_;
  std::string error_;  // The line that a service prints when it fails.
};

// Returns the flags that the --help of the program at `path` lists.
std::vector<KnownFlag> FlagsInHelp(const std::string& path);
// Returns the path of a program in `bin`.
std::string PathOf(const std::string& bin, PartId id);

}  // namespace quire

#endif  // QUIRE_LAUNCHER_PART_H_
