// SPDX-License-Identifier: Apache-2.0

#include "client/library/endpoint.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EndpointTest, AddressesThatGrpcTakesAreAccepted) {
  for (const char* endpoint :
       {"127.0.0.1:50051", "localhost:1", "manager.example:65535", "[::1]:50051", "unix:/run/quire.sock",
        "unix:relative.sock", "unix:///run/quire.sock", "unix-abstract:quire", "dns:///manager.example:50051",
        "dns:manager.example:50051", "ipv4:127.0.0.1:50051", "ipv6:[::1]:50051,[::2]:50051"}) {
    EXPECT_TRUE(CheckEndpoint(endpoint).ok()) << CheckEndpoint(endpoint);
  }
}

struct Refused {
  std::string endpoint;
  const char* why;
};

TEST(EndpointTest, RefusalsSayWhatIsWrongAndWhatWasExpectedInOneLine) {
  for (const Refused& refused : {
           Refused{"", "is empty"},
           Refused{"http://127.0.0.1:50051", "begins with http://"},
           Refused{"https://127.0.0.1:50051", "begins with https://"},
           Refused{"127.0.0.1", "has no port"},
           Refused{"[::1]", "has no port"},
           Refused{":50051", "has no host"},
           Refused{"::1:50051", "brackets"},
           Refused{"localhost:", "port \"\""},
           Refused{"localhost:0", "port \"0\""},
           Refused{"localhost:65536", "[1, 65535]"},
           Refused{"localhost:http", "port \"http\""},
           Refused{"localhost:50051/v1", "has a slash"},
           Refused{"local host:50051", "has a space"},
           Refused{"unix:", "has no path"},
           Refused{"unix:" + std::string(108, 'x'), "108 bytes"},
           Refused{"dns:///localhost", "has no port"},
       }) {
    const absl::Status status = CheckEndpoint(refused.endpoint);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << refused.endpoint;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(refused.why));
    EXPECT_THAT(message, HasSubstr("expected host:port or unix:path"));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(EndpointTest, AListIsSplitAtItsCommasAndCheckedAsAWhole) {
  EXPECT_THAT(SplitEndpoints("a:1,unix:/b"), ElementsAre("a:1", "unix:/b"));
  EXPECT_THAT(SplitEndpoints("ipv4:1.2.3.4:5,1.2.3.5:5"), ElementsAre("ipv4:1.2.3.4:5,1.2.3.5:5"));
  EXPECT_TRUE(CheckEndpoints("a:1,[::1]:2").ok());
  EXPECT_THAT(std::string(CheckEndpoints("a:1,b").message()), HasSubstr("\"b\" has no port"));
  EXPECT_FALSE(CheckEndpoints("a:1,").ok());
}

}  // namespace
}  // namespace quire
