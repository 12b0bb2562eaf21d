// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_PROTO_WIRE_RULES_H_
#define QUIRE_TESTS_PROTO_WIRE_RULES_H_

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace quire {

// Returns the violations of the wire's house rules in `file`, one sentence each, in order of appearance. The result is
// empty if there are none. REQUIRES: the file was built with source info; otherwise no element seems to have a comment.
//
//   package     is <name>.v<number>, or google.rpc
//   names       fields and oneofs lower_snake_case, messages and enums CamelCase, services end in "Service"
//   enums       value 0 is <ENUM_NAME>_UNSPECIFIED, every value begins with <ENUM_NAME>_
//   rpcs        Foo(FooRequest) returns (FooResponse)
//   comments    every message, field, oneof, enum, enum value, service and rpc has one
//   presence    scalars of messages named *Params are optional: unset is not the same as zero there
std::vector<std::string> WireRuleViolations(const google::protobuf::FileDescriptor& file);

// Returns the wire as text: one sorted line for each field, enum value, reserved range and rpc. Two schemas with the
// same text have the same encoding and the same generated names. A changed or removed line breaks programs that exist
// already.
std::vector<std::string> WireLines(const google::protobuf::FileDescriptor& file);

}  // namespace quire

#endif  // QUIRE_TESTS_PROTO_WIRE_RULES_H_
