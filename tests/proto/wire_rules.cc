// SPDX-License-Identifier: Apache-2.0

#include "tests/proto/wire_rules.h"

#include <google/protobuf/descriptor.pb.h>

#include <algorithm>
#include <cctype>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace quire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::OneofDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::SourceLocation;

bool IsLowerSnake(absl::string_view name) {
  const bool known_letters = std::all_of(
      name.begin(), name.end(), [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_'; });
  return known_letters && absl::ascii_islower(name.front()) && name.back() != '_' && !absl::StrContains(name, "__");
}

bool IsCamel(absl::string_view name) {
  return absl::ascii_isupper(name.front()) && std::all_of(name.begin(), name.end(), absl::ascii_isalnum);
}

// Converts "FinishReason" to "FINISH_REASON".
std::string UpperSnake(absl::string_view camel) {
  std::string out;
  for (char c : camel) {
    if (absl::ascii_isupper(c) && !out.empty()) out += '_';
    out += absl::ascii_toupper(c);
  }
  return out;
}

bool IsVersionedPackage(absl::string_view package) {
  const std::vector<absl::string_view> parts = absl::StrSplit(package, '.');
  absl::string_view version = parts.back();
  return parts.size() >= 2 && absl::ConsumePrefix(&version, "v") && !version.empty() &&
         std::all_of(version.begin(), version.end(), absl::ascii_isdigit);
}

class Linter {
 public:
  explicit Linter(const FileDescriptor& file) : file_(file) {}

  std::vector<std::string> Run() {
    if (!IsVersionedPackage(file_.package()) && file_.package() != "google.rpc") {
      Report(file_.name(), absl::StrCat("package ", file_.package(), " has no version, as in quire.v1"));
    }
    for (int i = 0; i < file_.message_type_count(); ++i) CheckMessage(*file_.message_type(i));
    for (int i = 0; i < file_.enum_type_count(); ++i) CheckEnum(*file_.enum_type(i));
    for (int i = 0; i < file_.service_count(); ++i) CheckService(*file_.service(i));
    return std::move(violations_);
  }

 private:
  void CheckMessage(const Descriptor& message) {
    if (message.options().map_entry()) return;
    CheckComment(message);
    if (!IsCamel(message.name())) Report(message.full_name(), "is not CamelCase");
    for (int i = 0; i < message.field_count(); ++i) CheckField(*message.field(i));
    for (int i = 0; i < message.real_oneof_decl_count(); ++i) {
      CheckComment(*message.oneof_decl(i));
      CheckLowerSnake(*message.oneof_decl(i));
    }
    for (int i = 0; i < message.nested_type_count(); ++i) CheckMessage(*message.nested_type(i));
    for (int i = 0; i < message.enum_type_count(); ++i) CheckEnum(*message.enum_type(i));
  }

  void CheckField(const FieldDescriptor& field) {
    CheckComment(field);
    CheckLowerSnake(field);
    const bool is_single_scalar = !field.is_repeated() && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
    if (absl::EndsWith(field.containing_type()->name(), "Params") && is_single_scalar && !field.has_presence()) {
      Report(field.full_name(), "is a parameter and not optional: unset would mean zero");
    }
  }

  void CheckEnum(const EnumDescriptor& type) {
    CheckComment(type);
    if (!IsCamel(type.name())) Report(type.full_name(), "is not CamelCase");
    const std::string prefix = UpperSnake(type.name()) + "_";
    for (int i = 0; i < type.value_count(); ++i) {
      const EnumValueDescriptor& value = *type.value(i);
      CheckComment(value);
      if (!absl::StartsWith(value.name(), prefix)) Report(value.full_name(), "does not begin with " + prefix);
      if (value.number() == 0 && value.name() != prefix + "UNSPECIFIED") {
        Report(value.full_name(), "is 0 and not " + prefix + "UNSPECIFIED");
      }
    }
  }

  void CheckService(const ServiceDescriptor& service) {
    CheckComment(service);
    if (!absl::EndsWith(service.name(), "Service")) Report(service.full_name(), "does not end in Service");
    for (int i = 0; i < service.method_count(); ++i) {
      const MethodDescriptor& method = *service.method(i);
      CheckComment(method);
      // A method that continues the stream of another one returns its responses.
      const std::string response(method.output_type()->name());
      const bool goes_on = absl::EndsWith(response, "Response") && method.server_streaming() &&
                           service.FindMethodByName(response.substr(0, response.size() - 8)) != nullptr;
      if (method.input_type()->name() != method.name() + "Request" ||
          (response != method.name() + "Response" && !goes_on)) {
        Report(method.full_name(), absl::StrCat("is not ", method.name(), "(", method.name(), "Request) returns (",
                                                method.name(), "Response)"));
      }
    }
  }

  template <typename Named>
  void CheckLowerSnake(const Named& named) {
    if (!IsLowerSnake(named.name())) Report(named.full_name(), "is not lower_snake_case");
  }

  template <typename Commented>
  void CheckComment(const Commented& commented) {
    SourceLocation location;
    const bool found = commented.GetSourceLocation(&location);
    if (!found || absl::StripAsciiWhitespace(location.leading_comments).empty()) {
      Report(commented.full_name(), "has no comment above it");
    }
  }

  void Report(const std::string& where, const std::string& what) {
    violations_.push_back(absl::StrCat(where, " ", what));
  }

  const FileDescriptor& file_;
  std::vector<std::string> violations_;
};

std::string TypeName(const FieldDescriptor& field) {
  if (field.is_map()) {
    const Descriptor& entry = *field.message_type();
    return absl::StrCat("map<", TypeName(*entry.map_key()), ",", TypeName(*entry.map_value()), ">");
  }
  if (field.type() == FieldDescriptor::TYPE_MESSAGE) return field.message_type()->full_name();
  if (field.type() == FieldDescriptor::TYPE_ENUM) return field.enum_type()->full_name();
  return field.type_name();
}

std::string Label(const FieldDescriptor& field) {
  if (field.is_map()) return "map";
  if (field.is_repeated()) return field.is_packed() ? "repeated packed" : "repeated";
  if (field.real_containing_oneof() != nullptr) return "oneof " + field.real_containing_oneof()->name();
  return field.has_optional_keyword() ? "optional" : "single";
}

void AppendEnumLines(const EnumDescriptor& type, std::vector<std::string>* lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines->push_back(absl::StrCat("enum ", type.full_name(), " ", absl::Dec(type.value(i)->number(), absl::kZeroPad4),
                                  " ", type.value(i)->name()));
  }
}

void AppendMessageLines(const Descriptor& message, std::vector<std::string>* lines) {
  if (message.options().map_entry()) return;
  lines->push_back(absl::StrCat("message ", message.full_name()));
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    lines->push_back(absl::StrCat("message ", message.full_name(), " ", absl::Dec(field.number(), absl::kZeroPad4), " ",
                                  field.name(), ": ", TypeName(field), " (", Label(field), ")"));
  }
  for (int i = 0; i < message.reserved_range_count(); ++i) {
    const Descriptor::ReservedRange& range = *message.reserved_range(i);
    lines->push_back(absl::StrCat("message ", message.full_name(), " ", absl::Dec(range.start, absl::kZeroPad4),
                                  " reserved to ", range.end - 1));
  }
  for (int i = 0; i < message.nested_type_count(); ++i) AppendMessageLines(*message.nested_type(i), lines);
  for (int i = 0; i < message.enum_type_count(); ++i) AppendEnumLines(*message.enum_type(i), lines);
}

void AppendServiceLines(const ServiceDescriptor& service, std::vector<std::string>* lines) {
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& method = *service.method(i);
    lines->push_back(absl::StrCat("rpc ", method.full_name(), "(", method.client_streaming() ? "stream " : "",
                                  method.input_type()->full_name(), ") returns (",
                                  method.server_streaming() ? "stream " : "", method.output_type()->full_name(), ")"));
  }
}

}  // namespace

std::vector<std::string> WireRuleViolations(const FileDescriptor& file) {
  return Linter(file).Run();
}

std::vector<std::string> WireLines(const FileDescriptor& file) {
  std::vector<std::string> lines;
  for (int i = 0; i < file.message_type_count(); ++i) AppendMessageLines(*file.message_type(i), &lines);
  for (int i = 0; i < file.enum_type_count(); ++i) AppendEnumLines(*file.enum_type(i), &lines);
  for (int i = 0; i < file.service_count(); ++i) AppendServiceLines(*file.service(i), &lines);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace quire
