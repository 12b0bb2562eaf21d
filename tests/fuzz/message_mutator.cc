// SPDX-License-Identifier: Apache-2.0

#include "tests/fuzz/message_mutator.h"

#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "base/utf8.h"

namespace quire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Appends `message` and all messages in it.
void Collect(Message* message, std::vector<Message*>* out) {
  out->push_back(message);
  const Reflection* const reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(reflection->MutableMessage(message, field), out);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      Collect(reflection->MutableRepeatedMessage(message, field, i), out);
    }
  }
}

}  // namespace

void MessageMutator::Mutate(Message* message) {
  std::vector<Message*> messages;
  Collect(message, &messages);
  Message* const chosen = messages[random_->Below(static_cast<int>(messages.size()))];
  const auto* const descriptor = chosen->GetDescriptor();
  if (descriptor->field_count() == 0) return;
  MutateField(chosen, descriptor->field(random_->Below(descriptor->field_count())));
}

void MessageMutator::MutateField(Message* message, const FieldDescriptor* field) {
  if (field->is_repeated()) return MutateRepeated(message, field);
  if (random_->OneIn(6)) return message->GetReflection()->ClearField(message, field);
  Set(message, field);
}

void MessageMutator::MutateRepeated(Message* message, const FieldDescriptor* field) {
  const Reflection* const reflection = message->GetReflection();
  const int size = reflection->FieldSize(*message, field);
  const int action = random_->Below(6);
  if (action == 0 && size > 0) return reflection->RemoveLast(message, field);
  if (action == 1 && size > 1) {
    return reflection->SwapElements(message, field, random_->Below(size), random_->Below(size));
  }
  const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (action == 2 && size > 0 && is_message) {
    // The element occurs twice.
    const int index = random_->Below(size);
    Message* const copy = reflection->AddMessage(message, field);
    copy->CopyFrom(reflection->GetRepeatedMessage(*message, field, index));
    return;
  }
  if (size > 0 && is_message && action < 5) return;  // Mutate changes the fields of elements.
  // A new value, which goes to any place.
  Set(message, field);
  if (size == 0 || random_->OneIn(2)) return;
  reflection->SwapElements(message, field, random_->Below(size), size);
  if (random_->OneIn(2)) reflection->RemoveLast(message, field);  // The value replaces another one.
}

void MessageMutator::Set(Message* message, const FieldDescriptor* field) {
  const Reflection* const reflection = message->GetReflection();
  const bool adds = field->is_repeated();
  switch (field->cpp_type()) {
#define QUIRE_SET(TYPE, NAME, VALUE) \
  case FieldDescriptor::TYPE:        \
    return adds ? reflection->Add##NAME(message, field, VALUE) : reflection->Set##NAME(message, field, VALUE)
    QUIRE_SET(CPPTYPE_INT32, Int32, static_cast<int32_t>(OddNumber()));
    QUIRE_SET(CPPTYPE_INT64, Int64, static_cast<int64_t>(OddNumber()));
    QUIRE_SET(CPPTYPE_UINT32, UInt32, static_cast<uint32_t>(OddNumber()));
    QUIRE_SET(CPPTYPE_UINT64, UInt64, OddNumber());
    QUIRE_SET(CPPTYPE_DOUBLE, Double, OddFraction());
    QUIRE_SET(CPPTYPE_FLOAT, Float, static_cast<float>(OddFraction()));
    QUIRE_SET(CPPTYPE_BOOL, Bool, random_->OneIn(2));
    QUIRE_SET(CPPTYPE_ENUM, EnumValue, random_->Below(field->enum_type()->value_count() + 2));
#undef QUIRE_SET
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string before = adds ? "" : reflection->GetString(*message, field);
      const std::string after = Changed(before);
      // protobuf does not parse messages with texts that are not UTF-8.
      const bool is_text = field->type() == FieldDescriptor::TYPE_STRING;
      const std::string& value = is_text && !CheckUtf8(after, "text").ok() ? before : after;
      return adds ? reflection->AddString(message, field, value) : reflection->SetString(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (adds) {
        reflection->AddMessage(message, field);
      } else {
        reflection->MutableMessage(message, field);
      }
      return;
  }
}

uint64_t MessageMutator::OddNumber() {
  constexpr uint64_t kNumbers[] = {0,          1,          2,          3,          4,         5,       15,
                                   16,         63,         64,         65,         95,        96,      255,
                                   256,        257,        65535,      65536,      65537,     1 << 20, 0x7fffffff,
                                   0x80000000, 0xffffffff, 1ull << 32, 1ull << 63, ~0ull - 1, ~0ull};
  return random_->OneIn(2) ? kNumbers[random_->Below(std::size(kNumbers))] : random_->Below(70);
}

double MessageMutator::OddFraction() {
  const double kNumbers[] = {0.0,   -0.0, 0.5,  1.0, -1.0,  2.0,
                             1e-30, 1e30, -100, 100, 1e300, std::numeric_limits<double>::infinity(),
                             NAN,   0.9f};
  if (random_->OneIn(4)) return std::bit_cast<float>(static_cast<uint32_t>(random_->Next()));
  return kNumbers[random_->Below(std::size(kNumbers))];
}

std::string MessageMutator::Changed(std::string bytes) {
  const int at = random_->Below(static_cast<int>(bytes.size()) + 1);
  switch (random_->Below(4)) {
    case 0:
      return bytes.insert(at, random_->Below(9), static_cast<char>(random_->Below(256)));
    case 1:
      return bytes.erase(at, random_->Below(5));
    case 2:
      // U+00E9, complete or cut.
      return bytes.insert(at, std::string("\u00e9").substr(random_->Below(2)));
    default:
      if (bytes.empty()) return std::string(1, static_cast<char>(random_->Below(3)));
      bytes[at % bytes.size()] = static_cast<char>(random_->Below(256));
      return bytes;
  }
}

}  // namespace quire
