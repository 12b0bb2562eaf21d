// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/model_list.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/field_reader.h"

namespace quire {
namespace {

Json ModelJson(const v1::GetModelResponse& model, int64_t created_unix_sec) {
  return {{"id", model.name()},
          {"object", "model"},
          {"created", created_unix_sec},
          {"owned_by", "quire"},
          {"root", model.name()},
          {"parent", nullptr},
          {"max_model_len", model.max_context_tokens()}};
}

}  // namespace

std::string ModelObject(const v1::GetModelResponse& model, int64_t created_unix_sec) {
  return Dump(ModelJson(model, created_unix_sec));
}

std::string ModelList(const v1::GetModelResponse& model, int64_t created_unix_sec) {
  const Json list = {{"object", "list"}, {"data", Json::array({ModelJson(model, created_unix_sec)})}};
  return Dump(list);
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

ApiError NoSuchModel(const std::string& asked, const std::string& served) {
  return {.http_code = 404,
          .message = absl::StrCat("the model \"", asked, "\" does not exist; this server has \"", served, "\""),
          .type = "not_found_error",
          .param = "model",
          .code = "model_not_found"};
}

}  // namespace quire
