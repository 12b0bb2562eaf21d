// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_FUZZ_MESSAGE_INPUT_H_
#define QUIRE_TESTS_FUZZ_MESSAGE_INPUT_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>

namespace quire {

// Inputs of fuzz targets that are protobuf messages. An input is a message in its binary form. An input that begins
// with
// '#' is a message in its text form, because people write the seeds. No message of ours begins with this byte.

// Reads an input into `message`. Returns false if it is no such message.
bool ReadMessage(const uint8_t* data, size_t size, google::protobuf::Message* message);

// Changes an input as LLVMFuzzerCustomMutator must: `data` has room for `max_size` bytes. Three times of four it
// changes fields of the message, so that most of the inputs are messages that somebody could send. Otherwise it changes
// bytes. Returns the new size. `message` is an empty message of the type.
size_t MutateMessage(uint8_t* data, size_t size, size_t max_size, unsigned int seed,
                     google::protobuf::Message* message);

}  // namespace quire

// libFuzzer has this function. seeds_test.cc defines it where libFuzzer is missing.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Makes a program a fuzz target for messages of a type: `RUN(const TYPE&)` gets every input.
#define QUIRE_FUZZ_MESSAGES(TYPE, RUN)                                                                        \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {                                   \
    TYPE message;                                                                                             \
    if (!quire::ReadMessage(data, size, &message)) return -1;                                                 \
    RUN(message);                                                                                             \
    return 0;                                                                                                 \
  }                                                                                                           \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) { \
    TYPE message;                                                                                             \
    return quire::MutateMessage(data, size, max_size, seed, &message);                                        \
  }                                                                                                           \
  static_assert(true)

#endif  // QUIRE_TESTS_FUZZ_MESSAGE_INPUT_H_
