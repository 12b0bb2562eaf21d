#ifndef QUIRE_CLIENT_ADMIN_COMMANDS_H_
#define QUIRE_CLIENT_ADMIN_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "client/client.h"
#include "client/output.h"

namespace quire {

// What operators ask and tell a manager: `quirectl status|explain|pin|unpin`.
class AdminCommands {
 public:
  // Declares the commands on `app`, which is borrowed and outlives this.
  explicit AdminCommands(CLI::App* app);

  // Runs the command that was parsed and returns the exit code; kExitUsage when it is none of these.
  int Run(Client& client, const std::string& endpoint, OutputFormat format) const;

 private:
  int RunStatus(Client& client, const std::string& endpoint, OutputFormat format) const;
  int RunExplain(Client& client, const std::string& endpoint, OutputFormat format) const;
  int RunPin(Client& client, const std::string& endpoint, OutputFormat format) const;
  int RunUnpin(Client& client, const std::string& endpoint, OutputFormat format) const;

  // The prompt of pin and unpin.
  void AddPromptOptions(CLI::App* command);
  template <typename Request>
  absl::Status ReadPrompt(Request* request) const;

  const CLI::App* status_;
  const CLI::App* explain_;
  const CLI::App* pin_;
  const CLI::App* unpin_;

  std::string request_id_;
  std::string text_;
  std::string cache_salt_;
  bool no_special_tokens_ = false;
  uint32_t ttl_seconds_ = 600;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_ADMIN_COMMANDS_H_
