# SPDX-License-Identifier: Apache-2.0
# quire_public_headers(TARGET t FOLDER f HEADERS ...) makes the target t, which copies headers of the repository into
# the flat folder f/quire, as an application includes them. There #include "client/library/client.h" becomes
# #include "quire/client.h", and the first line names the licence. It is an error when a header includes one of the
# repository that is not in the list.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(QUIRE_PUBLIC_HEADERS_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
endif()

function(quire_public_headers)
  cmake_parse_arguments(ARG "" "TARGET;FOLDER" "HEADERS" ${ARGN})
  set(made)
  foreach(header IN LISTS ARG_HEADERS)
    get_filename_component(name ${header} NAME)
    add_custom_command(
      OUTPUT ${ARG_FOLDER}/quire/${name}
      COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}/${header} -DOUT=${ARG_FOLDER}/quire/${name}
              "-DHEADERS=${ARG_HEADERS}" -P ${QUIRE_PUBLIC_HEADERS_SCRIPT}
      DEPENDS ${PROJECT_SOURCE_DIR}/${header} ${QUIRE_PUBLIC_HEADERS_SCRIPT}
      VERBATIM)
    list(APPEND made ${ARG_FOLDER}/quire/${name})
  endforeach()
  add_custom_target(${ARG_TARGET} ALL DEPENDS ${made})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()
file(READ ${SOURCE} text)
if(NOT text MATCHES "^// SPDX-License-Identifier")
  string(PREPEND text "// SPDX-License-Identifier: Apache-2.0\n\n")
endif()
foreach(header IN LISTS HEADERS)
  get_filename_component(name ${header} NAME)
  string(REPLACE "#include \"${header}\"" "#include \"quire/${name}\"" text "${text}")
endforeach()
foreach(folder base client grammar gateway kernels kv_manager launcher scheduler security serving tests tools worker)
  if(text MATCHES "#include \"(${folder}/[^\"]*)\"")
    message(FATAL_ERROR "${SOURCE}: it includes ${CMAKE_MATCH_1}, which is not installed")
  endif()
endforeach()
file(WRITE ${OUT} "${text}")
