// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/model_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gateway/openai/field_reader.h"

namespace quire {
namespace {

Json ModelJson(const std::string& name, const v1::GetModelResponse& model, int64_t created_unix_sec) {
  return {{"id", name},
          {"object", "model"},
          {"created", created_unix_sec},
          {"owned_by", "quire"},
          {"root", model.name()},
          {"parent", nullptr},
          {"max_model_len", model.max_context_tokens()}};
}

}  // namespace

std::vector<std::string> ModelNames(const v1::GetModelResponse& model, const std::vector<std::string>& served) {
  return served.empty() ? std::vector<std::string>{model.name()} : served;
}

std::variant<std::string, ApiError> NameForAnswer(const std::string& asked, const std::vector<std::string>& names) {
  if (asked.empty()) return names.front();
  if (std::find(names.begin(), names.end(), asked) != names.end()) return asked;
  return ApiError{.http_code = 404,
                  .message = absl::StrCat("the model \"", asked, "\" does not exist; this server has \"",
                                          absl::StrJoin(names, "\", \""), "\""),
                  .type = "not_found_error",
                  .param = "model",
                  .code = "model_not_found"};
}

std::string ModelObject(const std::string& name, const v1::GetModelResponse& model, int64_t created_unix_sec) {
  return Dump(ModelJson(name, model, created_unix_sec));
}

std::string ModelList(const std::vector<std::string>& names, const v1::GetModelResponse& model,
                      int64_t created_unix_sec) {
  Json models = Json::array();
  for (const std::string& name : names) models.push_back(ModelJson(name, model, created_unix_sec));
  return Dump(Json{{"object", "list"}, {"data", std::move(models)}});
}

std::string ModelNameOfUrl(absl::string_view text) {
  std::string name;
  while (!text.empty()) {
    uint32_t code = 0;
    const bool is_escape = text[0] == '%' && text.size() >= 3 && absl::ascii_isxdigit(text[1]) &&
                           absl::ascii_isxdigit(text[2]) && absl::SimpleHexAtoi(text.substr(1, 2), &code);
    name += is_escape ? static_cast<char>(code) : text[0];
    text.remove_prefix(is_escape ? 3 : 1);
  }
  return name;
}

}  // namespace quire
