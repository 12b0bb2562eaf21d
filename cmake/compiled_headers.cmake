# SPDX-License-Identifier: Apache-2.0
# Headers of the standard library, of Abseil and of GoogleTest take up to half of the time of compiling a source. So
# targets with the same options share one compiled form of these headers. The debug preset compiles every source without
# them, so a source that does not include what it uses is found there.
# GCC does not treat compiled headers as headers of the system, and finds false positives of warnings in them. So it has
# them for tests only.

set(QUIRE_COMPILED_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <limits>
  <map> <memory> <optional> <set> <string> <string_view> <thread> <utility> <vector>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h> <absl/time/clock.h> <absl/time/time.h> <absl/types/span.h>)

# Defines the target `name`, which only compiles headers. Its options must be those of the targets that use them.
function(quire_compile_headers name)
  set(source ${PROJECT_BINARY_DIR}/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Nothing but the compiled headers is needed.\n")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE
    absl::flat_hash_map absl::span absl::statusor absl::str_format absl::strings absl::time quire_options)
  target_precompile_headers(${name} PRIVATE ${ARGN})
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
  set(kinds test)
  quire_compile_headers(quire_test_headers <gmock/gmock.h> <gtest/gtest.h> ${QUIRE_COMPILED_HEADERS})
  target_link_libraries(quire_test_headers PRIVATE GTest::gmock)
  quire_compile_as_test(quire_test_headers)
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    list(APPEND kinds library unoptimised)
    foreach(kind IN ITEMS library unoptimised)
      quire_compile_headers(quire_${kind}_headers ${QUIRE_COMPILED_HEADERS})
      target_compile_options(quire_${kind}_headers PRIVATE -fPIE)
    endforeach()
    target_compile_options(quire_unoptimised_headers PRIVATE -O0)
  endif()
  foreach(kind IN LISTS kinds)
    get_property(targets GLOBAL PROPERTY QUIRE_TARGETS_WITH_${kind}_HEADERS)
    foreach(target IN LISTS targets)
      get_target_property(type ${target} TYPE)
      get_target_property(is_pic ${target} POSITION_INDEPENDENT_CODE)
      if(NOT is_pic OR type STREQUAL EXECUTABLE)
        target_precompile_headers(${target} REUSE_FROM quire_${kind}_headers)
      endif()
    endforeach()
  endforeach()
endfunction()
