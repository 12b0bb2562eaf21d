// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/body_memory.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

constexpr int64_t kUnit = 100'000;  // More than a small body.

class BodyMemoryTest : public testing::Test {
 protected:
  // Begins a body, and lets it grow. Returns whether there was room.
  bool Add(const std::string& name, const std::string& address, int64_t num_units) {
    bodies_[name] = memory_.Begin(address, [this, name] { bodies_.erase(name); });
    return bodies_[name]->Grow(num_units * kUnit);
  }
  bool Has(const std::string& name) const { return bodies_.contains(name); }

  BodyMemory memory_{10 * kUnit, 8 * kUnit};
  std::map<std::string, std::shared_ptr<BodyMemory::Share>> bodies_;
};

TEST_F(BodyMemoryTest, ABodyThatIsOnlyDeclaredOrSmallTakesNothing) {
  ASSERT_TRUE(Add("declared", "a", 0));
  ASSERT_TRUE(bodies_["declared"]->Grow(BodyMemory::kSmallBytes));
  EXPECT_EQ(memory_.num_bytes(), 0);
  EXPECT_TRUE(bodies_["declared"]->Grow(BodyMemory::kSmallBytes + 1));
  EXPECT_EQ(memory_.num_bytes(), BodyMemory::kSmallBytes + 1);
}

TEST_F(BodyMemoryTest, TheLastReferenceGivesTheMemoryBack) {
  ASSERT_TRUE(Add("x", "a", 3));
  ASSERT_TRUE(Add("y", "a", 2));
  EXPECT_EQ(memory_.num_bytes(), 5 * kUnit);
  bodies_.erase("x");
  EXPECT_EQ(memory_.num_bytes(), 2 * kUnit);
  bodies_.clear();
  EXPECT_EQ(memory_.num_bytes(), 0);
}

TEST_F(BodyMemoryTest, TheAddressWithMostLosesItsLargestBody) {
  ASSERT_TRUE(Add("large", "attacker", 4));
  ASSERT_TRUE(Add("medium", "attacker", 3));
  ASSERT_TRUE(Add("neighbour", "b", 3));
  EXPECT_TRUE(Add("new", "c", 2));
  EXPECT_FALSE(Has("large"));
  EXPECT_TRUE(Has("medium") && Has("neighbour") && Has("new"));
}

TEST_F(BodyMemoryTest, AnAddressThatHasMostLosesOnlyItsOwn) {
  ASSERT_TRUE(Add("neighbour", "b", 3));
  ASSERT_TRUE(Add("first", "attacker", 6));
  EXPECT_TRUE(Add("second", "attacker", 4)) << "there is room when the larger one has gone";
  EXPECT_FALSE(Has("first"));
  EXPECT_FALSE(bodies_["second"]->Grow(8 * kUnit)) << "it is the largest body of the address";
  EXPECT_TRUE(Has("neighbour"));
}

TEST_F(BodyMemoryTest, OneAddressDoesNotGetAll) {
  ASSERT_TRUE(Add("x", "a", 8));
  EXPECT_FALSE(bodies_["x"]->Grow(8 * kUnit + 1));
  bodies_["x"]->Complete();
  EXPECT_FALSE(Add("y", "a", 1)) << "a whole body is not dropped";
  EXPECT_TRUE(Has("x"));
  EXPECT_TRUE(Add("z", "b", 2));
}

TEST_F(BodyMemoryTest, AddressesWithEqualSharesDropTheirOwn) {
  ASSERT_TRUE(Add("x", "a", 5));
  ASSERT_TRUE(Add("y", "b", 5));
  EXPECT_FALSE(bodies_["y"]->Grow(6 * kUnit));
  EXPECT_TRUE(Has("x"));
}

}  // namespace
}  // namespace quire
