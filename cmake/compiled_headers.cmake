# SPDX-License-Identifier: Apache-2.0
# Headers of the standard library, of Abseil and of GoogleTest take up to half of the time of compiling a source. So
# targets with the same options share one compiled form of these headers. The debug preset compiles every source without
# them, so a source that does not include what it uses is found there.

set(QUIRE_COMPILED_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <limits>
  <map> <memory> <optional> <set> <string> <string_view> <thread> <utility> <vector>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h> <absl/time/clock.h> <absl/time/time.h> <absl/types/span.h>)

# With compiled headers, GCC 12 finds false positives of these warnings in std::string. All tests are compiled without
# the first two, and these targets also without -Wstringop-overread.
set(QUIRE_FALSE_POSITIVES $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds$<SEMICOLON>-Wno-stringop-overflow>)
set(QUIRE_TARGETS_WITH_FALSE_POSITIVES
  quire_jinja quire_manager_process quire_openai_translation quire_source_mutator)

# Defines the target `name`, which only compiles headers. Its options must be those of the targets that use them.
function(quire_compile_headers name)
  set(source ${PROJECT_BINARY_DIR}/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Nothing but the compiled headers is needed.\n")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE
    absl::flat_hash_map absl::span absl::statusor absl::str_format absl::strings absl::time quire_options)
  target_precompile_headers(${name} PRIVATE ${ARGN})
  target_compile_options(${name} PRIVATE -pthread)
endfunction()

# Every target that quire_library, quire_binary or quire_test defines is noted here, with the kind of its options.
function(quire_note_headers name kind)
  set_property(GLOBAL APPEND PROPERTY QUIRE_TARGETS_WITH_${kind}_HEADERS ${name})
endfunction()

# Called when all targets have their properties. Code of shared libraries has an option of its own, and is left out.
function(quire_use_compiled_headers)
  if(CMAKE_BUILD_TYPE STREQUAL Debug)
    return()
  endif()
  quire_compile_headers(quire_test_headers <gmock/gmock.h> <gtest/gtest.h> ${QUIRE_COMPILED_HEADERS})
  target_link_libraries(quire_test_headers PRIVATE GTest::gmock)
  quire_compile_as_test(quire_test_headers)
  quire_compile_headers(quire_library_headers ${QUIRE_COMPILED_HEADERS})
  target_compile_options(quire_library_headers PRIVATE -fPIE)
  if(QUIRE_SANITIZE)
    quire_compile_headers(quire_unoptimised_headers ${QUIRE_COMPILED_HEADERS})
    target_compile_options(quire_unoptimised_headers PRIVATE -fPIE -O0)
  endif()
  foreach(kind IN ITEMS test library unoptimised)
    get_property(targets GLOBAL PROPERTY QUIRE_TARGETS_WITH_${kind}_HEADERS)
    foreach(target IN LISTS targets)
      get_target_property(type ${target} TYPE)
      get_target_property(is_pic ${target} POSITION_INDEPENDENT_CODE)
      if(NOT is_pic OR type STREQUAL EXECUTABLE)
        target_precompile_headers(${target} REUSE_FROM quire_${kind}_headers)
        # All users of the same compiled headers must agree on this option, which some get from a library.
        target_compile_options(${target} PRIVATE -pthread)
        if(target IN_LIST QUIRE_TARGETS_WITH_FALSE_POSITIVES)
          target_compile_options(${target} PRIVATE
            ${QUIRE_FALSE_POSITIVES} $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overread>)
        endif()
      endif()
    endforeach()
  endforeach()
endfunction()
