# SPDX-License-Identifier: Apache-2.0
# Runs PROGRAMS, each of which has a planted bug and must fail. Those with a bug in the order of sums must pass with two
# ranks, which cannot tell an order.
cmake_policy(SET CMP0057 NEW)  # IN_LIST
set(ORDERS sums_added_from_left_to_right ranks_rotated)
function(run name filter)
  execute_process(
    COMMAND ${FOLDER}/${name} --gtest_brief=1 --gtest_fail_fast --gtest_filter=${filter}
    TIMEOUT 300 RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(result "${result}" PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

if(NOT PROGRAMS)
  message(FATAL_ERROR "PROGRAMS names no program")
endif()
string(REPLACE "|" ";" PROGRAMS "${PROGRAMS}")
foreach(name IN LISTS PROGRAMS)
  if(name IN_LIST ORDERS)
    run(${name} "*TwoRanks*")
    if(NOT result STREQUAL "0")
      message(SEND_ERROR "${name}: two ranks have found it: ${result}\n${output}")
    endif()
  endif()
  run(${name} "*HaveTheBits*:*HasTheBits*")
  if(result STREQUAL "0" OR result MATCHES "timeout")
    message(SEND_ERROR "MISSED ${name}: ${result}")
    continue()
  endif()
  string(REGEX MATCH "Failure\n[^\n]*\n[^\n]*\n" finding "${output}")
  string(REGEX REPLACE "\n" " " finding "${finding}")
  message("caught ${name}: ${finding}")
endforeach()
