# SPDX-License-Identifier: Apache-2.0
# quire_embed(NAME quire_n FILES ...) defines a library that contains the text of each file. Its header FOLDER/n.h, in
# the build tree, declares each text as `extern const absl::string_view` in namespace quire. The name is k and the
# file's name in camel case. A file may be outside the source tree.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(QUIRE_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
endif()

function(quire_embed)
  cmake_parse_arguments(ARG "" "NAME" "FILES" ${ARGN})
  set(files)
  foreach(file IN LISTS ARG_FILES)
    cmake_path(ABSOLUTE_PATH file)
    list(APPEND files ${file})
  endforeach()
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "^quire_" "${folder}/" path ${ARG_NAME})
  set(out ${PROJECT_BINARY_DIR}/${path})
  add_custom_command(
    OUTPUT ${out}.h ${out}.cc
    COMMAND ${CMAKE_COMMAND} -DNAME=${path} "-DFILES=${files}" -DOUT=${out} -P ${QUIRE_EMBED_SCRIPT}
    DEPENDS ${files} ${QUIRE_EMBED_SCRIPT}
    VERBATIM)
  add_library(${ARG_NAME} STATIC ${out}.cc ${out}.h)
  target_include_directories(${ARG_NAME} PUBLIC ${PROJECT_BINARY_DIR})
  target_link_libraries(${ARG_NAME} PUBLIC absl::strings PRIVATE quire_options)
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()
set(header "#pragma once\n\n#include \"absl/strings/string_view.h\"\n\nnamespace quire {\n\n")
set(source "#include \"${NAME}.h\"\n\nnamespace quire {\n\n")
foreach(file IN LISTS FILES)
  get_filename_component(base ${file} NAME)
  string(REGEX MATCHALL "[A-Za-z0-9]+" words ${base})
  set(name k)
  foreach(word IN LISTS words)
    string(SUBSTRING ${word} 0 1 first)
    string(SUBSTRING ${word} 1 -1 rest)
    string(TOUPPER ${first} first)
    string(APPEND name ${first}${rest})
  endforeach()
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND header "extern const absl::string_view ${name};\n")
  string(APPEND source "static const char ${name}Bytes[] = {${bytes}};\n"
    "const absl::string_view ${name}(${name}Bytes, sizeof(${name}Bytes));\n\n")
endforeach()
file(WRITE ${OUT}.h "${header}\n}  // namespace quire\n")
file(WRITE ${OUT}.cc "${source}}  // namespace quire\n")
