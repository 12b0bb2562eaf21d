// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_RANK_HOSTS_H_
#define QUIRE_WORKER_RANK_HOSTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// Where the ranks of a group run. Each host has as many of them as the others, one after the other.
struct RankHosts {
  int first_rank = 0;                  // The first rank of this host.
  int num_ranks = 1;                   // Ranks of this host.
  std::vector<std::string> addresses;  // [ranks], at which the manager reaches them. Empty: all are on this host.
  std::string network_devices;         // Through which the hosts reach each other. Empty: there is one host.

  bool IsOneHost() const { return addresses.empty(); }
  // The group id of ranks on several hosts, which the processes of all hosts know without a word between them.
  std::string GroupId() const;
};

// Returns the places of `size` ranks of one host.
RankHosts OneHost(int size);

// Reads --tp-hosts and --tp-host: `hosts` are the addresses at which the manager reaches the first rank of each host,
// joined by commas, and this is host `host` of them. Returns INVALID_ARGUMENT that names the flag, its value and the
// limit if `size` ranks cannot be placed like that.
absl::StatusOr<RankHosts> ParseRankHosts(absl::string_view hosts, int host, int size);

}  // namespace quire

#endif  // QUIRE_WORKER_RANK_HOSTS_H_
