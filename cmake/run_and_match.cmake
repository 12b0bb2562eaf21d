# SPDX-License-Identifier: Apache-2.0
# Runs a program as a test: its exit code must be 0, and its output must match a regular expression. The property
# PASS_REGULAR_EXPRESSION of a test alone would ignore the exit code.
#   cmake -DPATTERN=REGEX -P cmake/run_and_match.cmake -- PROGRAM [ARGUMENT...]
set(command)
set(is_command FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(is_command)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(is_command TRUE)
  endif()
endforeach()
execute_process(COMMAND ${command} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE errors)
message("${output}${errors}")
if(NOT code STREQUAL "0")
  message(FATAL_ERROR "exit code ${code}")
endif()
if(NOT output MATCHES "${PATTERN}")
  message(FATAL_ERROR "the output does not match ${PATTERN}")
endif()
