#ifndef QUIRE_CLIENT_LOOK_COMMANDS_H_
#define QUIRE_CLIENT_LOOK_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/client.h"
#include "client/output.h"

namespace quire {

// Where a command sends its calls and how it prints.
struct CommandContext {
  const std::string& endpoint;
  OutputFormat format;
  absl::Duration timeout;  // Of a call.
};

// How operators look inside a manager's workers and move work off them:
// `quirectl top|requests|tree|blocks|audit|drain|undrain|flush`.
class LookCommands {
 public:
  // Declares the commands on `app`, which is borrowed and outlives this.
  explicit LookCommands(CLI::App* app);

  // Whether one of these was parsed.
  bool is_chosen() const;

  // Runs it and returns the exit code. REQUIRES: is_chosen().
  int Run(Client& client, const CommandContext& context) const;

 private:
  void AddTop(CLI::App* app);
  void AddBlocks(CLI::App* app);
  void AddDrain(CLI::App* app);
  void AddWorkerOption(CLI::App* command);

  int RunTop(Client& client, const CommandContext& context) const;
  int RunRequests(Client& client, const CommandContext& context) const;
  int RunTree(Client& client, const CommandContext& context) const;
  int RunBlocks(Client& client, const CommandContext& context) const;
  int RunBlock(Client& client, const CommandContext& context) const;
  int RunAudit(Client& client, const CommandContext& context) const;
  int RunDrain(Client& client, const CommandContext& context) const;
  int WaitForDrain(Client& client, const CommandContext& context) const;
  int RunUndrain(Client& client, const CommandContext& context) const;
  int RunFlush(Client& client, const CommandContext& context) const;

  const CLI::App* top_;
  const CLI::App* requests_;
  const CLI::App* tree_;
  const CLI::App* blocks_;
  const CLI::App* audit_;
  const CLI::App* drain_;
  const CLI::App* undrain_;
  const CLI::App* flush_;

  std::string worker_;
  std::string request_id_;
  std::optional<uint32_t> block_;
  uint32_t max_requests_ = 100;
  int num_frames_ = 0;  // 0: until it is ended.
  double interval_s_ = 1;
  double wait_timeout_s_ = 0;  // 0: however long it takes.
  bool draws_map_ = false;
  bool repairs_ = false;
  bool waits_ = false;
  bool ends_pins_ = false;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LOOK_COMMANDS_H_
