// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/worker_address.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

std::string Error(const std::string& address) {
  const absl::Status status = CheckWorkerAddress(address);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
  return std::string(status.message());
}

TEST(WorkerAddressTest, EveryFormIsTaken) {
  for (const char* address : {"host:1", "10.0.0.1:65535", "[::1]:50061", "unix:/run/worker.sock", "unix:worker.sock",
                              "dns:///workers.example:50061", "dns:///[::1]:50061"}) {
    EXPECT_TRUE(CheckWorkerAddress(address).ok()) << CheckWorkerAddress(address);
  }
}

TEST(WorkerAddressTest, ErrorsNameAddressPartAndLimit) {
  const std::string forms = ", it must be host:port, unix:path or dns:///name:port";
  EXPECT_EQ(Error("host"), "'host' has no port" + forms);
  EXPECT_EQ(Error("dns:///host"), "'dns:///host' has no port" + forms);
  EXPECT_EQ(Error(":1"), "':1' has an empty host" + forms);
  EXPECT_EQ(Error("[]:1"), "'[]:1' has an empty host" + forms);
  EXPECT_EQ(Error("dns:///:1"), "'dns:///:1' has an empty host" + forms);
  EXPECT_EQ(Error("http://host:1"), "'http://host:1' has host 'http://host'" + forms);
  EXPECT_EQ(Error(" host:1"), "' host:1' has host ' host'" + forms);
  EXPECT_EQ(Error("host:"), "'host:' has port '', it must be 1 .. 65535");
  EXPECT_EQ(Error("host:0"), "'host:0' has port '0', it must be 1 .. 65535");
  EXPECT_EQ(Error("host:65536"), "'host:65536' has port '65536', it must be 1 .. 65535");
  EXPECT_EQ(Error("host:http"), "'host:http' has port 'http', it must be 1 .. 65535");
  EXPECT_EQ(Error("::1:50061"), "'::1:50061' has host '::1', an IPv6 address must be in brackets, as in [::1]:50061");
  EXPECT_EQ(Error("unix:"), "'unix:' has a path of 0 bytes, it must have 1 .. 107");
  const std::string path(108, 'a');
  EXPECT_EQ(Error("unix:" + path), absl::StrCat("'unix:", path, "' has a path of 108 bytes, it must have 1 .. 107"));
}

}  // namespace
}  // namespace quire
