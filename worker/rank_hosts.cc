// SPDX-License-Identifier: Apache-2.0

#include "worker/rank_hosts.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fingerprint.h"
#include "base/listen_address.h"
#include "base/status.h"

namespace quire {
namespace {

struct Host {
  std::string address;  // Of its first rank.
  std::string name;
  int port = 0;
};

absl::StatusOr<Host> ReadHost(absl::string_view address, int num_ranks) {
  const std::optional<HostPort> parts = SplitHostPort(address);
  Host host;
  if (!parts || !absl::SimpleAtoi(parts->port, &host.port) || host.port == 0) {
    return InvalidArgument("--tp-hosts has \"", address, "\", it must be host:port with a port above 0");
  }
  const int last_port = host.port + num_ranks - 1;
  if (last_port > kMaxListenPort) {
    return InvalidArgument("--tp-hosts has \"", address, "\", whose ", num_ranks, " ranks take ports up to ", last_port,
                           ", the limit is ", kMaxListenPort);
  }
  host.address = std::string(address);
  host.name = parts->host;
  return host;
}

}  // namespace

std::string RankHosts::GroupId() const {
  Fingerprint digest;
  for (const std::string& address : addresses) digest.Add(address);
  return digest.Hex();
}

RankHosts OneHost(int size) {
  RankHosts places;
  places.num_ranks = size;
  return places;
}

absl::StatusOr<RankHosts> ParseRankHosts(absl::string_view hosts, int host, int size) {
  const std::vector<absl::string_view> entries = absl::StrSplit(hosts, ',');
  const int num_hosts = static_cast<int>(entries.size());
  if (num_hosts < 2 || size % num_hosts != 0) {
    return InvalidArgument("--tp-hosts names ", num_hosts, num_hosts == 1 ? " host" : " hosts", ", with --tp=", size,
                           " it must name at least 2, and each of them must have as many ranks as the others");
  }
  if (host < 0 || host >= num_hosts) {
    return InvalidArgument("--tp-host is ", host, ", it must be the place of this host in --tp-hosts, 0 to ",
                           num_hosts - 1);
  }
  RankHosts places;
  places.num_ranks = size / num_hosts;
  places.first_rank = host * places.num_ranks;
  std::vector<Host> known;
  for (const absl::string_view entry : entries) {
    QUIRE_ASSIGN_OR_RETURN(const Host next, ReadHost(entry, places.num_ranks));
    for (const Host& other : known) {
      if (other.name != next.name || std::abs(other.port - next.port) >= places.num_ranks) continue;
      return InvalidArgument("--tp-hosts has \"", other.address, "\" and \"", next.address,
                             "\", whose ports overlap: ", "each takes ", places.num_ranks);
    }
    for (int i = 0; i < places.num_ranks; ++i) places.addresses.push_back(RankAddress(next.address, i));
    known.push_back(next);
  }
  return places;
}

}  // namespace quire
