// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/guide_fields.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

// Takes the guides of a request, of which there may be one.
class GuideReader {
 public:
  GuideReader(v1::GenerateRequest* request, GenerateCall* call) : request_(request), call_(call) {}

  // `fields` has the field `name`, and `path` is the name with what comes before it.
  void ReadSchema(FieldReader* fields, const char* name, const std::string& path) {
    const Json* const schema = fields->Find(name);
    if (schema == nullptr) return;
    v1::Guide guide;
    // vLLM takes a schema as JSON, and as a text with JSON.
    guide.set_json_schema(schema->is_string() ? schema->get<std::string>() : Dump(*schema));
    Set(std::move(guide), fields, name, path);
  }
  void ReadRegex(FieldReader* fields, const char* name, const std::string& path) {
    const std::optional<std::string> regex = fields->String(name);
    if (!regex.has_value()) return;
    v1::Guide guide;
    guide.set_regex(*regex);
    Set(std::move(guide), fields, name, path);
  }
  void ReadGrammar(FieldReader* fields, const char* name, const std::string& path) {
    const std::optional<std::string> grammar = fields->String(name);
    if (!grammar.has_value()) return;
    v1::Guide guide;
    guide.set_grammar(*grammar);
    Set(std::move(guide), fields, name, path);
  }
  void ReadChoice(FieldReader* fields, const char* name, const std::string& path) {
    if (fields->Find(name) == nullptr) return;
    const std::vector<std::string> texts = fields->Strings(name);
    if (texts.empty()) return fields->Fail(name, "is empty, it must be a list of 1 to 1024 texts");
    v1::Guide guide;
    for (const std::string& text : texts) guide.mutable_choice()->add_texts(text);
    Set(std::move(guide), fields, name, path);
  }
  void SetJsonObject(FieldReader* fields, const char* name, const std::string& path) {
    v1::Guide guide;
    guide.set_json_object(true);
    Set(std::move(guide), fields, name, path);
  }
  bool has_guide() const { return request_->has_guided(); }

 private:
  // The same guide may have several names.
  void Set(v1::Guide guide, FieldReader* fields, const char* name, const std::string& path) {
    if (!request_->has_guided()) {
      call_->names.guide = path;
      *request_->mutable_guided() = std::move(guide);
    } else if (guide.SerializeAsString() != request_->guided().SerializeAsString()) {
      fields->Fail(name, absl::StrCat("cannot be combined with ", call_->names.guide, ", which is another guide"));
    }
  }

  v1::GenerateRequest* const request_;
  GenerateCall* const call_;
};

void ReadResponseFormat(FieldReader* fields, GuideReader* guide) {
  const Json* const format = fields->Object("response_format");
  if (format == nullptr) return;
  FieldReader reader(*format, "response_format.", fields);
  const std::string type = reader.String("type").value_or("");
  if (reader.Find("schema") != nullptr && (type == "json_object" || type == "json_schema")) {
    // llama.cpp and others have the schema here.
    guide->ReadSchema(&reader, "schema", "response_format.schema");
  } else if (type == "json_object") {
    guide->SetJsonObject(&reader, "type", "response_format.type");
  } else if (type == "json_schema") {
    const Json* const named = reader.Object("json_schema");
    if (named == nullptr) {
      reader.Fail("json_schema", "is missing");
    } else {
      FieldReader schema(*named, "response_format.json_schema.", &reader);
      if (schema.Find("schema") == nullptr) schema.Fail("schema", "is missing");
      guide->ReadSchema(&schema, "schema", "response_format.json_schema.schema");
      schema.Ignore({"name", "description", "strict"});  // A schema always holds for the whole output.
      schema.RefuseOthers();
    }
  } else if (type != "text") {
    reader.Fail("type", absl::StrCat("is ", Json(type).dump(), ", it must be text, json_object or json_schema"));
  }
  reader.RefuseOthers();
}

void ReadStructuredOutputs(FieldReader* fields, GuideReader* guide) {
  const Json* const outputs = fields->Object("structured_outputs");
  if (outputs == nullptr) return;
  const std::string path = "structured_outputs.";
  FieldReader reader(*outputs, path, fields);
  guide->ReadSchema(&reader, "json", path + "json");
  guide->ReadRegex(&reader, "regex", path + "regex");
  guide->ReadChoice(&reader, "choice", path + "choice");
  guide->ReadGrammar(&reader, "grammar", path + "grammar");
  if (reader.Bool("json_object").value_or(false)) guide->SetJsonObject(&reader, "json_object", path + "json_object");
  reader.Ignore({"disable_fallback"});  // There is nothing to fall back to.
  reader.AcceptOnly("disable_any_whitespace", "[false]", "this server decides where JSON may have white space");
  reader.AcceptOnly("disable_additional_properties", "[false]", "a schema says itself what its objects may have");
  reader.AcceptOnly("whitespace_pattern", "[]", "this server decides where JSON may have white space");
  reader.RefuseOthers();
  if (reader.error().has_value() || guide->has_guide()) return;
  fields->Fail("structured_outputs", "has none of json, regex, choice, grammar and json_object");
}

}  // namespace

void ReadGuideFields(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call) {
  GuideReader guide(request, call);
  ReadResponseFormat(fields, &guide);
  ReadStructuredOutputs(fields, &guide);
  guide.ReadSchema(fields, "guided_json", "guided_json");
  guide.ReadRegex(fields, "guided_regex", "guided_regex");
  guide.ReadChoice(fields, "guided_choice", "guided_choice");
  guide.ReadGrammar(fields, "guided_grammar", "guided_grammar");
  // llama.cpp has these.
  guide.ReadSchema(fields, "json_schema", "json_schema");
  guide.ReadGrammar(fields, "grammar", "grammar");
}

void ReadTextFormat(FieldReader* text, v1::GenerateRequest* request, GenerateCall* call) {
  const Json* const format = text->Object("format");
  if (format == nullptr) return;
  const std::string path = "text.format.";
  GuideReader guide(request, call);
  FieldReader reader(*format, path, text);
  const std::string type = reader.String("type").value_or("");
  if (type == "json_schema") {
    if (reader.Find("schema") == nullptr) reader.Fail("schema", "is missing");
    guide.ReadSchema(&reader, "schema", path + "schema");
    reader.Ignore({"name", "description", "strict"});  // A schema always holds for the whole output.
  } else if (type == "json_object") {
    guide.SetJsonObject(&reader, "type", path + "type");
  } else if (type != "text") {
    reader.Fail("type", absl::StrCat("is ", Dump(type), ", it must be text, json_object or json_schema"));
  }
  reader.RefuseOthers();
}

}  // namespace quire
