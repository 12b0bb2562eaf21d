# SPDX-License-Identifier: Apache-2.0
# quire_library(NAME n HDRS ... SRCS ... DEPS ...), quire_binary(...) and quire_test(...) each define one target with
# its files and its dependencies. Files are listed, never globbed. Include paths start at the repository root.
# With QUIRE_WARNINGS_AS_ERRORS, warnings in our own code are errors.

add_library(quire_options INTERFACE)
target_compile_features(quire_options INTERFACE cxx_std_20)
# Two warnings of GCC are off: -Wrestrict has false positives on std::string concatenation in GCC 12, and
# -Wsubobject-linkage has false positives in unity builds. Clang does not know them.
target_compile_options(quire_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra $<$<BOOL:${QUIRE_WARNINGS_AS_ERRORS}>:-Werror> -fno-math-errno
    -ffp-contract=off>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict $<$<BOOL:${CMAKE_UNITY_BUILD}>:-Wno-subobject-linkage>>)
target_include_directories(quire_options INTERFACE ${PROJECT_SOURCE_DIR})

# Instrumented code causes false positives in GCC's search for uninitialised values, and -Wtsan warns of every fence,
# also of those in Abseil's headers.
if(QUIRE_SANITIZE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(quire_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  if(QUIRE_SANITIZE MATCHES thread)
    add_compile_definitions(QUIRE_THREAD_SANITIZER)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      target_compile_options(quire_options INTERFACE -Wno-tsan)
    endif()
  endif()
  add_compile_options(-fsanitize=${QUIRE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${QUIRE_SANITIZE})
  # If a check of pointer arithmetic ends the program at once, each check is an exit of its loop, and clang needs about
  # twice as long for the kernels. So the run-time library ends the program (base/sanitizer_options.cc).
  if(QUIRE_SANITIZE MATCHES undefined AND NOT QUIRE_SANITIZE MATCHES fuzzer)
    add_compile_options(-fsanitize-recover=pointer-overflow)
  endif()
  if(QUIRE_SANITIZE MATCHES address)
    add_compile_definitions(QUIRE_ADDRESS_SANITIZER)
    # The hash tables of newer Abseil are partly in its library, which distributions build without sanitizers. Headers
    # that know of the address sanitizer give the tables another layout, and poison memory that the library uses.
    if(absl_VERSION VERSION_GREATER_EQUAL 20230000)
      set(first_header ${PROJECT_SOURCE_DIR}/cmake/abseil_without_sanitizer.h)
      add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${first_header}>")
    endif()
  endif()
  # With its three checks for null pointers, GCC does not take the address of a function for a constant. The newer
  # Abseil of Debian 13 needs that it does. The address sanitizer still ends a program that reads or writes at null.
  if(QUIRE_SANITIZE MATCHES undefined)
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_FLAGS "-std=c++20 -fsanitize=${QUIRE_SANITIZE}")
    set(CMAKE_REQUIRED_LIBRARIES absl::flat_hash_map)
    check_cxx_source_compiles("
      #include <absl/container/flat_hash_map.h>
      int main() { return absl::flat_hash_map<int, int>()[0]; }" QUIRE_HAS_ABSEIL_WITH_NULL_CHECKS)
    unset(CMAKE_REQUIRED_FLAGS)
    unset(CMAKE_REQUIRED_LIBRARIES)
    if(NOT QUIRE_HAS_ABSEIL_WITH_NULL_CHECKS)
      add_compile_options(-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute)
    endif()
  endif()
endif()

# Protections of all programs, which tests/hardening_test.cc looks for in the binaries: a write beyond an array on the
# stack, or by a function of the C library beyond an object whose size the compiler knows, ends the process. The tables
# that dynamic linking uses are read-only, and the program has a random address. Sanitizers find more such errors, and
# FORTIFY_SOURCE needs an optimised build. Code of other languages than C++ (CUDA) is compiled without the first two.
if(NOT QUIRE_SANITIZE)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_cxx_source_compiles("
    #include <features.h>
    #if !defined(__USE_FORTIFY_LEVEL) || __USE_FORTIFY_LEVEL < 3
    #error the C library or the compiler knows level 2 only
    #endif
    int main() {}" QUIRE_HAS_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  set(fortify -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$<IF:$<BOOL:${QUIRE_HAS_FORTIFY_3}>,3,2>)
  add_compile_options(
    $<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:${fortify}>")
  add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
endif()
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)

# Under AddressSanitizer and UndefinedBehaviorSanitizer, clang may need twice as long for optimised code. So a
# sanitizer build optimises only the libraries in whose code its tests spend their time. A fuzz target runs as fast as
# it can.
set(QUIRE_FAST_UNDER_SANITIZERS
  quire_base quire_cuda_backend quire_cuda_kernels quire_device_test_util quire_emulated_device quire_engine
  quire_grammar quire_grammar_trials quire_jinja quire_kernels quire_kernels_reference quire_kv_blocks
  quire_memory_waste quire_model quire_model_test_runner quire_prefix_reuse quire_sampling_cases quire_scheduler
  quire_serving_sim quire_shadow_worker quire_sim quire_simt quire_tokenizer quire_worker_link)
function(quire_choose_optimisation name)
  if(QUIRE_SANITIZE AND NOT QUIRE_SANITIZE MATCHES fuzzer AND NOT name IN_LIST QUIRE_FAST_UNDER_SANITIZERS)
    target_compile_options(${name} PRIVATE -O0)
    set(QUIRE_KIND_OF_HEADERS unoptimised PARENT_SCOPE)
  else()
    set(QUIRE_KIND_OF_HEADERS library PARENT_SCOPE)
  endif()
endfunction()

function(quire_library)
  cmake_parse_arguments(ARG "" "NAME" "HDRS;SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(${ARG_NAME} STATIC ${ARG_SRCS} ${ARG_HDRS})
    target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPS} PRIVATE quire_options)
    target_include_directories(${ARG_NAME} PUBLIC ${PROJECT_SOURCE_DIR})
    target_compile_features(${ARG_NAME} PUBLIC cxx_std_20)
    # Code for programs. The code of shared libraries has -fPIC instead.
    target_compile_options(${ARG_NAME} PRIVATE
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:POSITION_INDEPENDENT_CODE>>>>:-fPIE>)
    quire_choose_optimisation(${ARG_NAME})
    quire_note_headers(${ARG_NAME} ${QUIRE_KIND_OF_HEADERS})
  else()
    add_library(${ARG_NAME} INTERFACE)
    target_sources(${ARG_NAME} INTERFACE)
    target_link_libraries(${ARG_NAME} INTERFACE ${ARG_DEPS})
    target_include_directories(${ARG_NAME} INTERFACE ${PROJECT_SOURCE_DIR})
    target_compile_features(${ARG_NAME} INTERFACE cxx_std_20)
  endif()
endfunction()

# Planted bugs (tests/sim/mutants) replace one object file of the library `name`, so they must know the sources of each
# object. In a unity build, an object has eight sources in the order of the list.
function(quire_note_objects name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${name} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cc$")
  set(group 0)
  while(sources)
    list(SUBLIST sources 0 8 together)
    list(REMOVE_ITEM sources ${together})
    set_source_files_properties(${together} PROPERTIES UNITY_GROUP ${group})
    list(TRANSFORM together PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    foreach(source IN LISTS together)
      set_property(GLOBAL PROPERTY QUIRE_SOURCES_WITH_${source} ${together})
    endforeach()
    math(EXPR group "${group} + 1")
  endwhile()
endfunction()

# Sets `result` to the sources that are compiled together with `source`, which is one of them.
function(quire_sources_of_object source result)
  if(CMAKE_UNITY_BUILD)
    get_property(together GLOBAL PROPERTY QUIRE_SOURCES_WITH_${source})
  else()
    set(together ${source})
  endif()
  set(${result} ${together} PARENT_SCOPE)
endfunction()

# The options of sanitizers, as sources of a program.
set(QUIRE_SANITIZER_OPTIONS $<$<TARGET_EXISTS:quire_sanitizer_options>:$<TARGET_OBJECTS:quire_sanitizer_options>>)

function(quire_binary)
  cmake_parse_arguments(ARG "" "NAME;OUTPUT" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS} ${QUIRE_SANITIZER_OPTIONS})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} quire_options)
  set_target_properties(${ARG_NAME} PROPERTIES
    POSITION_INDEPENDENT_CODE ON RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  quire_note_headers(${ARG_NAME} library)
  if(ARG_OUTPUT)
    set_target_properties(${ARG_NAME} PROPERTIES OUTPUT_NAME ${ARG_OUTPUT})
  endif()
endfunction()

# Labels a test with its folder below tests/, and with FOLDERS, which are further folders that it tests. ./check --quick
# runs the tests whose labels are folders that have changed. Those with the label "documents" check generated documents.
# TARGETS are what the test needs, if that is not the program of its name. A script needs the installed programs, unless
# it says otherwise. All of this goes into the file tests.txt of the build, for tools/check_plan.
function(quire_label_test name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;TARGETS" ${ARGN})
  string(REGEX REPLACE "[.].*" "" program ${name})
  if(NOT ARG_TARGETS AND TARGET ${program})
    set(ARG_TARGETS ${program})
  elseif(NOT ARG_TARGETS AND QUIRE_GRPC AND NOT QUIRE_SANITIZE)
    set(ARG_TARGETS quire_installed)
  endif()
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "^tests/" "" folder "${folder}")
  set(labels ${folder} ${ARG_FOLDERS})
  set_property(TEST ${name} APPEND PROPERTY LABELS ${labels})
  list(JOIN ARG_TARGETS " " targets)
  list(JOIN labels " " labels)
  set_property(GLOBAL APPEND_STRING PROPERTY QUIRE_TESTS "${name}|${targets}|${labels}\n")
endfunction()

# Called when all tests are defined.
function(quire_write_tests)
  get_property(tests GLOBAL PROPERTY QUIRE_TESTS)
  file(WRITE ${PROJECT_BINARY_DIR}/tests.txt "${tests}")
endfunction()

# The optimisation of the tests themselves costs more time than it saves; the code under test has that of the preset.
# Undefined behaviour is looked for in the code under test only, because the instrumentation of the tests' macros would
# take most of the time of a sanitizer build.
function(quire_compile_as_test name)
  if(QUIRE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0 -fno-sanitize=undefined)
  else()
    target_compile_options(${name} PRIVATE -O1)
  endif()
  target_compile_options(${name} PRIVATE ${QUIRE_FALSE_POSITIVES})
endfunction()

# TIMEOUT is in seconds (default 600), and four times as long under a sanitizer. With SHARDS, the tests of the program
# are distributed to that many runs: NAME.0, NAME.1, ... FOLDERS are folders that it tests besides its own.
# A test that starts threads is THREADED. These tests have the label "threaded".
# In a unity build (CMAKE_UNITY_BUILD) several sources are compiled as one. The sources of ALONE are compiled
# separately, because they use names that another source of the test uses as well.
function(quire_test)
  cmake_parse_arguments(ARG "THREADED" "NAME;SHARDS;TIMEOUT" "SRCS;ALONE;DEPS;FOLDERS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(QUIRE_SANITIZE)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS} ${ARG_ALONE} ${QUIRE_SANITIZER_OPTIONS})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main quire_options)
  quire_compile_as_test(${ARG_NAME})
  quire_note_headers(${ARG_NAME} test)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(ARG_THREADED)
    list(APPEND ARG_FOLDERS threaded)
  endif()
  if(NOT ARG_SHARDS)
    add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
    set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
    quire_label_test(${ARG_NAME} FOLDERS ${ARG_FOLDERS})
    return()
  endif()
  math(EXPR last_shard "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last_shard})
    add_test(NAME ${ARG_NAME}.${shard} COMMAND ${ARG_NAME})
    set_tests_properties(${ARG_NAME}.${shard} PROPERTIES
      TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
    quire_label_test(${ARG_NAME}.${shard} FOLDERS ${ARG_FOLDERS})
  endforeach()
endfunction()

# Runs a program that is built here as a test. Its exit code must be 0 and its output must match PATTERN.
function(quire_program_test)
  cmake_parse_arguments(ARG "" "NAME;PATTERN;TIMEOUT" "COMMAND;FOLDERS" ${ARGN})
  list(POP_FRONT ARG_COMMAND program)
  add_test(NAME ${ARG_NAME} COMMAND ${CMAKE_COMMAND} -DPATTERN=${ARG_PATTERN}
    -P ${PROJECT_SOURCE_DIR}/cmake/run_and_match.cmake -- $<TARGET_FILE:${program}> ${ARG_COMMAND})
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  quire_label_test(${ARG_NAME} FOLDERS ${ARG_FOLDERS} TARGETS ${program})
endfunction()

# Runs the same test program once more for each width to which weights can be rounded.
function(quire_quantized_test)
  cmake_parse_arguments(ARG "" "NAME;FILTER" "" ${ARGN})
  foreach(width int8 int4 int4-bfloat16 int8-kv)
    add_test(NAME ${ARG_NAME}.${width} COMMAND ${ARG_NAME} --gtest_filter=${ARG_FILTER})
    set_tests_properties(${ARG_NAME}.${width} PROPERTIES
      TIMEOUT 600 ENVIRONMENT "QUIRE_TEST_DEVICE=${width}" FAIL_REGULAR_EXPRESSION "Running 0 tests")
    quire_label_test(${ARG_NAME}.${width})
  endforeach()
endfunction()

# Runs the same test program once more, with a device that computes nothing.
function(quire_simulated_test)
  cmake_parse_arguments(ARG "" "NAME;FILTER" "" ${ARGN})
  add_test(NAME ${ARG_NAME}.simulated COMMAND ${ARG_NAME} --gtest_filter=${ARG_FILTER})
  set_tests_properties(${ARG_NAME}.simulated PROPERTIES
    TIMEOUT 600 ENVIRONMENT "QUIRE_TEST_DEVICE=simulated" FAIL_REGULAR_EXPRESSION "Running 0 tests")
  quire_label_test(${ARG_NAME}.simulated)
endfunction()

# Runs the same test program once more, with the GPU backend on the emulated device (QUIRE_TEST_DEVICE). FILTER is
# passed to gtest; it excludes tests that are too slow there or apply only to float32.
function(quire_emulated_gpu_test)
  cmake_parse_arguments(ARG "" "NAME;FILTER;TIMEOUT" "" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(QUIRE_SANITIZE)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  add_test(NAME ${ARG_NAME}.emulated_gpu COMMAND ${ARG_NAME} --gtest_filter=${ARG_FILTER})
  set_tests_properties(${ARG_NAME}.emulated_gpu PROPERTIES
    TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "QUIRE_TEST_DEVICE=emulated" FAIL_REGULAR_EXPRESSION "Running 0 tests"
    COST 1000)  # The longest tests run first.
  quire_label_test(${ARG_NAME}.emulated_gpu FOLDERS slow)
endfunction()
