// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/model_list.h"

#include <string>
#include <variant>
#include <vector>

#include "gateway/openai/body_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

TEST(ModelListTest, TheNameOfAModelInAUrlMayBeEscaped) {
  EXPECT_EQ(ModelNameOfUrl("owner/name"), "owner/name");
  EXPECT_EQ(ModelNameOfUrl("owner%2Fname"), "owner/name");
  EXPECT_EQ(ModelNameOfUrl("owner%2fa%20b%25"), "owner/a b%");
  EXPECT_EQ(ModelNameOfUrl("%2"), "%2");
  EXPECT_EQ(ModelNameOfUrl("100%zz%-1"), "100%zz%-1");
  EXPECT_EQ(ModelNameOfUrl(""), "");
}

TEST(ModelListTest, AModelHasTheNamesOfTheFlagOrElseItsOwn) {
  v1::GetModelResponse model;
  model.set_name("tales");
  EXPECT_THAT(ModelNames(model, {}), ElementsAre("tales"));
  EXPECT_THAT(ModelNames(model, {"a", "b"}), ElementsAre("a", "b"));
  const Json list = Json::parse(ModelList({"a", "b"}, model, 7));
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "a");
  EXPECT_EQ(list["data"][1]["id"], "b");
  EXPECT_EQ(list["data"][1]["root"], "tales");
  EXPECT_EQ(Json::parse(ModelObject("b", model, 7)), list["data"][1]);
}

TEST(ModelListTest, AnAnswerHasTheNameThatTheClientUsedOrElseTheFirst) {
  const std::vector<std::string> names = {"a", "b"};
  EXPECT_EQ(std::get<std::string>(NameForAnswer("b", names)), "b");
  EXPECT_EQ(std::get<std::string>(NameForAnswer("", names)), "a");
  const ApiError error = std::get<ApiError>(NameForAnswer("tales", names));
  EXPECT_EQ(error.http_code, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.message, R"(the model "tales" does not exist; this server has "a", "b")");
}

}  // namespace
}  // namespace quire
