// SPDX-License-Identifier: Apache-2.0

#include "worker/rank_hosts.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RankHostsTest, EachHostHasItsShareAtAdjacentPorts) {
  for (const int host : {0, 1}) {
    const auto places = ParseRankHosts("10.0.0.1:50061,[fd00::2]:60000", host, 4);
    ASSERT_TRUE(places.ok()) << places.status();
    EXPECT_EQ(places->first_rank, 2 * host);
    EXPECT_EQ(places->num_ranks, 2);
    EXPECT_THAT(places->addresses,
                ElementsAre("10.0.0.1:50061", "10.0.0.1:50062", "[fd00::2]:60000", "[fd00::2]:60001"));
    EXPECT_FALSE(places->IsOneHost());
  }
  const auto last = ParseRankHosts("a:65535,b:1", 1, 2);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_THAT(last->addresses, ElementsAre("a:65535", "b:1"));
  // Ports of one name may follow each other.
  EXPECT_TRUE(ParseRankHosts("a:50061,a:50063", 1, 4).ok());
}

TEST(RankHostsTest, OneHostHasAllRanks) {
  const RankHosts places = OneHost(4);
  EXPECT_EQ(places.first_rank, 0);
  EXPECT_EQ(places.num_ranks, 4);
  EXPECT_THAT(places.addresses, IsEmpty());
  EXPECT_TRUE(places.IsOneHost());
}

TEST(RankHostsTest, HostsOfOneGroupHaveOneGroupId) {
  const std::string id = ParseRankHosts("a:1,b:1", 0, 4)->GroupId();
  EXPECT_EQ(ParseRankHosts("a:1,b:1", 1, 4)->GroupId(), id);
  EXPECT_NE(ParseRankHosts("a:1,b:1", 0, 2)->GroupId(), id);
  EXPECT_NE(ParseRankHosts("a:1,c:1", 0, 4)->GroupId(), id);
  EXPECT_EQ(id.size(), 32u);
}

TEST(RankHostsTest, WhatCannotBePlacedIsRefused) {
  const auto error = [](const char* hosts, int host, int size) {
    return std::string(ParseRankHosts(hosts, host, size).status().message());
  };
  EXPECT_EQ(error("a:1", 0, 4),
            "--tp-hosts names 1 host, with --tp=4 it must name at least 2, and each of them must have as many ranks as "
            "the others");
  EXPECT_EQ(error("a:1,b:1,c:1", 0, 4),
            "--tp-hosts names 3 hosts, with --tp=4 it must name at least 2, and each of them must have as many ranks "
            "as the others");
  EXPECT_EQ(error("a:1,b:1", 0, 1),
            "--tp-hosts names 2 hosts, with --tp=1 it must name at least 2, and each of them must have as many ranks "
            "as the others");
  for (const int host : {-1, 2}) {
    EXPECT_EQ(error("a:1,b:1", host, 4),
              "--tp-host is " + std::to_string(host) + ", it must be the place of this host in --tp-hosts, 0 to 1");
  }
  for (const std::string bad : {"", "b", "b:0", "b:65536", "unix:/run/b", ":1"}) {
    EXPECT_EQ(error(("a:1," + bad).c_str(), 0, 4),
              "--tp-hosts has \"" + bad + "\", it must be host:port with a port above 0");
  }
  EXPECT_EQ(error("a:1,b:65535", 0, 4),
            "--tp-hosts has \"b:65535\", whose 2 ranks take ports up to 65536, the limit is 65535");
  EXPECT_EQ(error("a:2,a:1", 0, 4), "--tp-hosts has \"a:2\" and \"a:1\", whose ports overlap: each takes 2");
}

}  // namespace
}  // namespace quire
