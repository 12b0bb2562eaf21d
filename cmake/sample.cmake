# SPDX-License-Identifier: Apache-2.0
# Continuous integration has no time for everything, so ./check --third takes samples of the planted bugs in GPU kernels
# and of the tests under sanitizers. With QUIRE_SAMPLE=K/N, a build has every Nth of them, beginning with number K. With
# 0/1, it has all.
set(QUIRE_SAMPLE "0/1" CACHE STRING "K/N: every Nth planted bug in GPU kernels and test under sanitizers, from number K")
if(NOT QUIRE_SAMPLE MATCHES "^([0-9]+)/([1-9][0-9]*)$")
  message(FATAL_ERROR "QUIRE_SAMPLE is '${QUIRE_SAMPLE}'. It must be K/N, for example 0/3.")
endif()
set(QUIRE_SAMPLE_SIZE ${CMAKE_MATCH_2})
math(EXPR QUIRE_SAMPLE_START "${CMAKE_MATCH_1} % ${CMAKE_MATCH_2}")

# Counts one more thing of a kind, and sets `result` to whether it belongs to the sample.
function(quire_draw kind result)
  get_property(number GLOBAL PROPERTY QUIRE_NUM_DRAWN_${kind})
  if(NOT number)
    set(number 0)
  endif()
  math(EXPR place "${number} % ${QUIRE_SAMPLE_SIZE}")
  math(EXPR number "${number} + 1")
  set_property(GLOBAL PROPERTY QUIRE_NUM_DRAWN_${kind} ${number})
  set(${result} FALSE PARENT_SCOPE)
  if(place EQUAL QUIRE_SAMPLE_START)
    set(${result} TRUE PARENT_SCOPE)
  endif()
endfunction()
