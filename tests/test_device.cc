#include "tests/test_device.h"

#include <cstdlib>
#include <string>

#include "base/check.h"

namespace quire {

bool IsGpuEmulated() {
  const char* const value = std::getenv("QUIRE_TEST_DEVICE");
  const std::string device = value == nullptr ? "" : value;
  QUIRE_CHECK(device.empty() || device == "emulated") << "QUIRE_TEST_DEVICE is " << device << ", it must be emulated";
  return !device.empty();
}

}  // namespace quire
