# SPDX-License-Identifier: Apache-2.0
# Planted bugs. A list has pieces of sources and what replaces each of them, after a header "=== NAME SOURCE ...". The
# program quire_mutate makes a source with one bug of a list.

# Sets `headers` to the headers of `list`. A change of the list configures the build anew.
function(quire_read_planted list headers)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} lines REGEX "^=== ")
  set(${headers} ${lines} PARENT_SCOPE)
endfunction()

# Makes `changed`: the file `source`, a path in the repository, with bug `name` of `list`.
function(quire_plant list name source changed)
  get_filename_component(folder ${changed} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  set(source ${PROJECT_SOURCE_DIR}/${source})
  add_custom_command(
    OUTPUT ${changed}
    COMMAND quire_mutate ${list} ${name} ${source} ${changed}
    DEPENDS ${list} ${source} quire_mutate
    VERBATIM)
endfunction()
