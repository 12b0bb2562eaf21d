# SPDX-License-Identifier: Apache-2.0
# Fails when an object of the per-instruction-set kernels defines a symbol outside its own namespace, except for the
# function that returns its table. The linker could use that copy in code that runs on every machine.
string(REPLACE "|" ";" OBJECTS "${OBJECTS}")
if(NOT OBJECTS)
  message(FATAL_ERROR "no objects given")
endif()
# DW.ref is a pointer for exception tables and not code. Sanitizers add it.
string(CONCAT own
  "DW.ref|quire::cpu::(generic|avx2|avx512|avx512_vnni|avx512_bf16|amx)::"
  "|quire::cpu::(Generic|Avx2|Avx512|Avx512Vnni|Avx512Bf16|Amx)Kernels\\(\\)")
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} -C --defined-only --extern-only ${object}
                  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE ";" "," symbols "${symbols}")
  string(REGEX REPLACE "\n" ";" symbols "${symbols}")
  foreach(symbol IN LISTS symbols)
    if(symbol AND NOT symbol MATCHES "${own}")
      message(SEND_ERROR "${object} defines ${symbol}")
    endif()
  endforeach()
endforeach()
