// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_MESSAGE_NUMBERS_H_
#define QUIRE_BASE_MESSAGE_NUMBERS_H_

#include <cstdint>
#include <string>
#include <type_traits>

#include "base/check.h"

// Numbers of protobuf messages by the names of their fields. Fields of the types float, uint32 and fixed32 have exact
// values as double. These are templates, so that this folder needs no protobuf. REQUIRES: the message has such a field.

namespace quire {

template <typename Message>
auto* NumberField(const Message& message, const char* name) {
  const auto* const field = message.GetDescriptor()->FindFieldByName(std::string(name));
  QUIRE_CHECK(field != nullptr) << name;
  return field;
}

// REQUIRES: the field is optional.
template <typename Message>
bool HasNumber(const Message& message, const char* name) {
  return message.GetReflection()->HasField(message, NumberField(message, name));
}

template <typename Message>
double NumberOf(const Message& message, const char* name) {
  const auto* const field = NumberField(message, name);
  using Field = std::remove_reference_t<decltype(*field)>;
  return field->cpp_type() == Field::CPPTYPE_FLOAT
             ? static_cast<double>(message.GetReflection()->GetFloat(message, field))
             : static_cast<double>(message.GetReflection()->GetUInt32(message, field));
}

template <typename Message>
void SetNumber(const char* name, double value, Message* message) {
  const auto* const field = NumberField(*message, name);
  using Field = std::remove_reference_t<decltype(*field)>;
  if (field->cpp_type() == Field::CPPTYPE_FLOAT) {
    message->GetReflection()->SetFloat(message, field, static_cast<float>(value));
  } else {
    message->GetReflection()->SetUInt32(message, field, static_cast<uint32_t>(value));
  }
}

}  // namespace quire

#endif  // QUIRE_BASE_MESSAGE_NUMBERS_H_
