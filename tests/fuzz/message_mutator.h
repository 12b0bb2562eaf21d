// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_FUZZ_MESSAGE_MUTATOR_H_
#define QUIRE_TESTS_FUZZ_MESSAGE_MUTATOR_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>

#include "tests/random.h"

namespace quire {

// Changes protobuf messages at random, field by field. Numbers become values near limits or far above them.
class MessageMutator {
 public:
  // `random` must outlive the mutator.
  explicit MessageMutator(Random* random) : random_(random) {}

  // Changes one field of `message`, or of a message inside it.
  void Mutate(google::protobuf::Message* message);

 private:
  void MutateField(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field);
  void MutateRepeated(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field);
  // Sets the field, or appends an element to a repeated field.
  void Set(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field);
  uint64_t OddNumber();
  double OddFraction();
  std::string Changed(std::string bytes);

  Random* const random_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_FUZZ_MESSAGE_MUTATOR_H_
