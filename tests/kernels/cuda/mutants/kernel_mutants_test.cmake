# SPDX-License-Identifier: Apache-2.0
# Runs PROGRAMS. Those whose names begin with no_bug must pass, and each of the others must fail. A program ends with
# its first test that fails. The test of all shapes is left out, because these programs have few shapes. Tests that use
# no kernel are left out, too.
string(JOIN ":" LEFT_OUT
  *EveryShape* *EveryKernelTable* *Multiply* *ExactProducts* *CopiesReach* *NewMemory* *LeftOut*)
function(run name)
  if(NOT EXISTS ${FOLDER}/${name})
    message(FATAL_ERROR "${FOLDER}/${name} was not built")
  endif()
  execute_process(
    COMMAND ${FOLDER}/${name} --gtest_brief=1 --gtest_fail_fast
            --gtest_filter=-${LEFT_OUT}
    TIMEOUT 180 RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(result "${result}" PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

if(NOT PROGRAMS)
  message(FATAL_ERROR "PROGRAMS names no program")
endif()
string(REPLACE "|" ";" PROGRAMS "${PROGRAMS}")
foreach(name IN LISTS PROGRAMS)
  run(${name})
  if(name MATCHES "^no_bug")
    if(NOT result STREQUAL "0")
      message(SEND_ERROR "${name}: ${result}\n${output}")
    endif()
    continue()
  endif()
  if(result STREQUAL "0" OR result MATCHES "timeout")
    message(SEND_ERROR "MISSED ${name}: ${result}")
    continue()
  endif()
  string(REGEX MATCH "the emulated GPU found\n[^\n]*\n|Failure\n[^\n]*\n" finding "${output}")
  string(REGEX REPLACE "\n" " " finding "${finding}")
  message("caught ${name}: ${finding}")
endforeach()
