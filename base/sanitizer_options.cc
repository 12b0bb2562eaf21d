// SPDX-License-Identifier: Apache-2.0

// Every program that is built with UndefinedBehaviorSanitizer has this file. The run-time library of the sanitizer asks
// it for the options of the program.
extern "C" const char* __ubsan_default_options() {
  return "halt_on_error=1:print_stacktrace=1";
}
