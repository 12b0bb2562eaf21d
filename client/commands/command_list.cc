// SPDX-License-Identifier: Apache-2.0

#include "client/commands/command_list.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

const CommandList::Command& CommandList::Chosen() const {
  const auto chosen =
      std::find_if(commands_.begin(), commands_.end(), [](const Command& command) { return command.app->parsed(); });
  QUIRE_CHECK(chosen != commands_.end()) << "CLI11 has parsed none of the commands";
  return *chosen;
}

}  // namespace quire
