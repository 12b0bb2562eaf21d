// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/embed_call.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace quire {
namespace {

// A shortest number that gives the float again, such as -1.1754944e-38, and a comma.
constexpr size_t kNumberBytes = 16;
// Limit of what the answer has for each input beside the values and texts.
constexpr size_t kInputBytes = 128;

void AppendNumber(double value, std::string* out) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  out->append(text, end);
}

void AppendNumber(float value, std::string* out) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  out->append(text, end);
}

// Appends the little-endian bytes of the floats in base64, in quotes.
void AppendBase64(const v1::Embedding& embedding, std::string* out) {
  std::string bytes(static_cast<size_t>(embedding.values_size()) * sizeof(float), '\0');
  std::memcpy(bytes.data(), embedding.values().data(), bytes.size());
  absl::StrAppend(out, "\"", absl::Base64Escape(bytes), "\"");
}

void AppendList(const v1::Embedding& embedding, std::string* out) {
  *out += '[';
  for (const float value : embedding.values()) {
    if (out->back() != '[') *out += ',';
    AppendNumber(value, out);
  }
  *out += ']';
}

void AppendUsage(const EmbedAnswer& answer, std::string* out) {
  int64_t num_tokens = answer.num_tokens;
  for (const v1::Embedding* const embedding : answer.embeddings) num_tokens += embedding->prompt_tokens();
  absl::StrAppend(out, "\"usage\":{\"prompt_tokens\":", num_tokens, ",\"total_tokens\":", num_tokens, "}");
}

void AppendModel(const EmbedAnswer& answer, std::string* out) {
  *out += "\"model\":";
  AppendJsonString(answer.model, out);
}

// `{"id":...,"object":"list","created":...,"model":...,"data":[`
std::string ListHead(absl::string_view prefix, const EmbedAnswer& answer) {
  std::string body = "{\"id\":";
  AppendJsonString(absl::StrCat(prefix, answer.id), &body);
  absl::StrAppend(&body, ",\"object\":\"list\",\"created\":", answer.created_unix_sec, ",");
  AppendModel(answer, &body);
  return body + ",\"data\":[";
}

std::string ListEnd(const EmbedAnswer& answer) {
  std::string end = "],";
  AppendUsage(answer, &end);
  return end + "}";
}

// The cosine of two embeddings, which are normalized.
double Cosine(const v1::Embedding& a, const v1::Embedding& b) {
  return std::inner_product(
      a.values().begin(), a.values().end(), b.values().begin(), 0.0,
      [](double sum, double product) { return sum + product; }, [](float x, float y) { return double{x} * y; });
}

std::vector<double> ScoresOf(const std::vector<std::pair<size_t, size_t>>& pairs, const EmbedAnswer& answer) {
  if (answer.embeddings.empty()) return answer.scores;
  std::vector<double> scores;
  for (const auto& [a, b] : pairs) scores.push_back(Cosine(*answer.embeddings[a], *answer.embeddings[b]));
  return scores;
}

void AddInput(v1::EmbedInput input, std::string name, EmbedCall* call) {
  call->num_bytes += input.ByteSizeLong();
  call->inputs.push_back(std::move(input));
  call->input_names.push_back(std::move(name));
}

void AddText(std::string text, std::string name, EmbedCall* call) {
  v1::EmbedInput input;
  input.set_text(std::move(text));
  AddInput(std::move(input), std::move(name), call);
}

// Reads fields that all three requests have.
void ReadCommonFields(FieldReader* fields, EmbedCall* call) {
  call->model = fields->String("model").value_or("");
  fields->Ignore({"user", "request_id"});
  if (const auto value = fields->Integer("priority", INT32_MIN, INT32_MAX)) {
    call->common.set_priority(static_cast<int32_t>(*value));
  }
  if (const auto value = fields->String("cache_salt")) call->common.set_cache_salt(*value);
  for (const char* const name : {"truncate_prompt_tokens", "max_tokens_per_doc", "truncation"}) {
    fields->AcceptOnly(name, "[false]", "texts are not cut here; send at most as many tokens as the model's context");
  }
  fields->AcceptOnly("additional_data", "[]", "the model reads the texts only");
  fields->AcceptOnly("mm_processor_kwargs", "[{}]", "the model reads text only");
}

// Adds one input: a text or a list of token ids.
void ReadInput(const Json& value, const std::string& name, FieldReader* fields, EmbedCall* call) {
  if (value.is_string()) return AddText(value.get<std::string>(), name, call);
  if (!value.is_array() || value.empty()) {
    return fields->Fail(name, absl::StrCat(value.is_array() ? "is empty" : Describe(value),
                                           ", it must be a text or a list of token ids"));
  }
  v1::EmbedInput input;
  auto* const ids = input.mutable_token_ids()->mutable_ids();
  ids->Reserve(static_cast<int>(value.size()));
  for (const Json& id : value) {
    if (!IsTokenId(id)) {
      return fields->Fail(absl::StrCat(name, "[", ids->size(), "]"), absl::StrCat(Describe(id), kNoTokenId));
    }
    ids->Add(id.get<uint32_t>());
  }
  AddInput(std::move(input), name, call);
}

// Reads fields of requests that compare texts.
void ReadComparedFields(FieldReader* fields, EmbedCall* call) {
  ReadCommonFields(fields, call);
  call->common.set_normalize(true);
  call->instruction = fields->String("instruction");
}

bool CheckNumber(size_t count, const char* name, FieldReader* fields) {
  if (count > 0 && count <= kMaxEmbedInputs) return true;
  fields->Fail(
      name, count == 0 ? "is empty" : absl::StrCat("has ", count, " texts, at most ", kMaxEmbedInputs, " are allowed"));
  return false;
}

void ReadInputs(FieldReader* fields, EmbedCall* call) {
  fields->Refuse("messages", "conversations have no embeddings here; send \"input\"");
  const Json* const input = fields->Find("input");
  if (input == nullptr) return fields->Fail("input", "is missing");
  const bool is_one = input->is_string() || (input->is_array() && !input->empty() && (*input)[0].is_number());
  if (is_one || !input->is_array()) return ReadInput(*input, "input", fields, call);
  if (!CheckNumber(input->size(), "input", fields)) return;
  for (size_t i = 0; i < input->size() && !fields->error().has_value(); ++i) {
    ReadInput((*input)[i], absl::StrCat("input[", i, "]"), fields, call);
  }
}

// Reads a text, or a list of texts or of objects with a text, whose other members are for the client alone.
std::vector<std::string> ReadTexts(const char* name, FieldReader* fields) {
  const Json* const value = fields->Find(name);
  std::vector<std::string> texts;
  if (value == nullptr) {
    fields->Fail(name, "is missing");
    return texts;
  }
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) {
    fields->Fail(name, absl::StrCat(Describe(*value), ", it must be a text or a list of texts"));
    return texts;
  }
  if (!CheckNumber(value->size(), name, fields)) return texts;
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& entry = (*value)[i];
    const std::string path = absl::StrCat(name, "[", i, entry.is_object() ? "].text" : "]");
    if (entry.is_object() && !entry.contains("text")) {
      fields->Fail(path, "is missing");
      return texts;
    }
    const Json& text = entry.is_object() ? entry["text"] : entry;
    if (!text.is_string()) {
      fields->Fail(path, absl::StrCat(Describe(text), ", it must be a text"));
      return texts;
    }
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::variant<EmbedCall, ApiError> Finish(FieldReader* fields, EmbedCall call) {
  fields->RefuseOthers();
  if (fields->error().has_value()) return *fields->error();
  call.other_bytes += (call.inputs.size() + 8) * kInputBytes + call.model.size();
  return call;
}

}  // namespace

std::variant<EmbedCall, ApiError> ReadEmbeddingsCall(const Json& body, UnknownFields unknown) {
  EmbedCall call;
  FieldReader fields(body, "", unknown == UnknownFields::kIgnore ? &call.ignored : nullptr);
  ReadCommonFields(&fields, &call);
  const std::string format = fields.String("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.Fail("encoding_format", absl::StrCat("is ", Dump(format), ", it must be \"float\" or \"base64\""));
  }
  if (const auto value = fields.Count("dimensions", 1)) call.common.set_dimensions(*value);
  if (const auto value = fields.Bool("add_special_tokens")) call.common.set_add_special_tokens(*value);
  // Two names of vLLM for the same.
  const std::optional<bool> normalize = fields.Bool("normalize");
  const std::optional<bool> activation = fields.Bool("use_activation");
  if (normalize.has_value() && activation.has_value() && *normalize != *activation) {
    fields.Fail("use_activation",
                "differs from normalize, another name of the same field; they must be equal, or one "
                "of them must be left out");
  }
  if (const auto value = normalize.has_value() ? normalize : activation) call.common.set_normalize(*value);
  fields.AcceptOnly("embed_dtype", R"(["float32"])", "the values are floats of 32 bits");
  fields.AcceptOnly("endianness", R"(["native","little"])", "the bytes of base64 are little-endian");
  ReadInputs(&fields, &call);
  const bool is_base64 = format == "base64";
  call.value_bytes = is_base64 ? 6 : kNumberBytes;
  call.body = [is_base64](const EmbedAnswer& answer) {
    std::string text = ListHead("embd-", answer);
    for (size_t i = 0; i < answer.embeddings.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ",", "{\"object\":\"embedding\",\"index\":", i, ",\"embedding\":");
      (is_base64 ? AppendBase64 : AppendList)(*answer.embeddings[i], &text);
      text += '}';
    }
    return text + ListEnd(answer);
  };
  return Finish(&fields, std::move(call));
}

std::variant<EmbedCall, ApiError> ReadRerankCall(const Json& body, UnknownFields unknown) {
  EmbedCall call;
  FieldReader fields(body, "", unknown == UnknownFields::kIgnore ? &call.ignored : nullptr);
  ReadComparedFields(&fields, &call);
  const std::optional<std::string> query = fields.String("query");
  if (!query.has_value()) fields.Fail("query", "is missing");
  std::vector<std::string> documents = ReadTexts("documents", &fields);
  const auto top = fields.Count("top_n").value_or(0);  // 0: all, as in vLLM.
  const bool returns_documents = fields.Bool("return_documents").value_or(true);
  AddText(query.value_or(""), "query", &call);
  for (size_t i = 0; i < documents.size(); ++i) {
    // In JSON, a byte takes at most six.
    if (returns_documents) call.other_bytes += 6 * documents[i].size();
    AddText(returns_documents ? documents[i] : std::move(documents[i]), absl::StrCat("documents[", i, "]"), &call);
    call.pairs.emplace_back(0, i + 1);
  }
  if (!returns_documents) documents.clear();
  call.body = [top, returns_documents, pairs = call.pairs,
               documents = std::move(documents)](const EmbedAnswer& answer) {
    std::vector<std::pair<double, size_t>> order;  // The score, and the index of the document.
    for (const double score : ScoresOf(pairs, answer)) order.emplace_back(score, order.size());
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    if (top > 0 && top < order.size()) order.resize(top);
    std::string text = "{\"id\":";
    AppendJsonString(absl::StrCat("rerank-", answer.id), &text);
    text += ',';
    AppendModel(answer, &text);
    text += ',';
    AppendUsage(answer, &text);
    text += ",\"results\":[";
    for (const auto& [score, index] : order) {
      absl::StrAppend(&text, text.back() == '[' ? "" : ",", "{\"index\":", index, ",\"relevance_score\":");
      AppendNumber(score, &text);
      if (returns_documents) {
        text += ",\"document\":{\"text\":";
        AppendJsonString(documents[index], &text);
        text += '}';
      }
      text += '}';
    }
    return text + "]}";
  };
  return Finish(&fields, std::move(call));
}

std::variant<EmbedCall, ApiError> ReadScoreCall(const Json& body, UnknownFields unknown) {
  EmbedCall call;
  FieldReader fields(body, "", unknown == UnknownFields::kIgnore ? &call.ignored : nullptr);
  ReadComparedFields(&fields, &call);
  std::vector<std::string> first = ReadTexts("text_1", &fields);
  std::vector<std::string> second = ReadTexts("text_2", &fields);
  const size_t num_first = first.size();
  if (num_first != 1 && num_first != second.size()) {
    fields.Fail("text_1", absl::StrCat("has ", num_first, " texts, and text_2 has ", second.size(),
                                       "; text_1 must have one text or as many as text_2"));
  }
  for (size_t i = 0; i < num_first; ++i) AddText(std::move(first[i]), absl::StrCat("text_1[", i, "]"), &call);
  for (size_t i = 0; i < second.size(); ++i) {
    AddText(std::move(second[i]), absl::StrCat("text_2[", i, "]"), &call);
    call.pairs.emplace_back(num_first == 1 ? 0 : i, num_first + i);
  }
  call.body = [pairs = call.pairs](const EmbedAnswer& answer) {
    std::string text = ListHead("score-", answer);
    size_t index = 0;
    for (const double score : ScoresOf(pairs, answer)) {
      absl::StrAppend(&text, index == 0 ? "" : ",", "{\"index\":", index, ",\"object\":\"score\",\"score\":");
      AppendNumber(score, &text);
      text += '}';
      ++index;
    }
    return text + ListEnd(answer);
  };
  return Finish(&fields, std::move(call));
}

}  // namespace quire
