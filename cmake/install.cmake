# SPDX-License-Identifier: Apache-2.0
# What `cmake --install build/release --component NAME` installs (docs/install.md):
#   runtime     the programs with their manual pages and completion, the documents, the bundled model, and the units of
#               systemd with their configuration
#   client-dev  the client library for C++ with its headers, the protos, and files for CMake and pkg-config
#   python      the Python package
# All paths but those of the units are relative to the prefix, so an installed tree may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(cmake/public_headers.cmake)

# The version of the programs is that of the packages.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS base/version.h)
file(STRINGS base/version.h QUIRE_VERSION REGEX "kVersion")
string(REGEX REPLACE ".*\"([0-9.]+)\".*" "\\1" QUIRE_VERSION "${QUIRE_VERSION}")

# Programs.
set(installed quire quire_manager quire_openai quire_quantize quire_worker quirectl)
install(TARGETS ${installed} COMPONENT runtime
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(PROGRAMS download/quire-download COMPONENT runtime DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY download/ COMPONENT runtime DESTINATION ${CMAKE_INSTALL_DATADIR}/quire/download
  FILES_MATCHING PATTERN *.py PATTERN __pycache__ EXCLUDE)
install(DIRECTORY models/tales COMPONENT runtime DESTINATION ${CMAKE_INSTALL_DATADIR}/quire/models)
# The documents keep their places beside each other, so that their links lead somewhere.
install(FILES CHANGELOG.md README.md SECURITY.md COMPONENT runtime DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/quire)
install(DIRECTORY docs COMPONENT runtime DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/quire)
install(CODE "
  set(SOURCE \"${PROJECT_SOURCE_DIR}/deploy/systemd\")
  include(\"\${SOURCE}/install.cmake\")" COMPONENT runtime)
if(QUIRE_CUDA)
  # The worker looks for this library in its own folder. It has a component of its own, because it needs cuBLAS.
  install(TARGETS quire_cuda COMPONENT cuda LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})
  list(APPEND installed quire_cuda)
  # The programs of the GPU bundle look for libraries in a folder beside their own. Installed programs do not need it.
  install(CODE "
    foreach(program quire-manager quire-quantize quire-worker quirectl)
      file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/\${program}\")
    endforeach()" COMPONENT runtime)
endif()

if(TARGET quire_ucx)
  # The same for ranks, which need UCX.
  install(TARGETS quire_ucx COMPONENT ranks LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})
  list(APPEND installed quire_ucx)
endif()

# Manual pages and completion of shells, from what the programs print.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT QUIRE_SANITIZE)
  set(pages ${PROJECT_BINARY_DIR}/pages)
  set(documented quire quire_manager quire_openai quire_quantize quire_worker quirectl)
  set(programs ${PROJECT_SOURCE_DIR}/download/quire-download)
  foreach(program IN LISTS documented)
    list(APPEND programs $<TARGET_FILE:${program}>)
  endforeach()
  add_custom_command(
    OUTPUT ${pages}/made
    COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/cmake/program_pages.py ${pages} ${programs}
    COMMAND ${CMAKE_COMMAND} -E touch ${pages}/made
    DEPENDS cmake/program_pages.py download/quire-download ${documented}
    VERBATIM)
  add_custom_target(quire_program_pages ALL DEPENDS ${pages}/made)
  list(APPEND installed quire_program_pages)
  install(DIRECTORY ${pages}/man1 COMPONENT runtime DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(DIRECTORY ${pages}/bash/ COMPONENT runtime DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(DIRECTORY ${pages}/zsh/ COMPONENT runtime DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(DIRECTORY ${pages}/fish/ COMPONENT runtime DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# The client library as one archive. Applications may link it into shared libraries of theirs.
set(parts quire_base quire_call_policy quire_client quire_messages quire_proto quire_sealing quire_security)
set(objects)
foreach(part IN LISTS parts)
  set_target_properties(${part} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${part} PRIVATE -fno-semantic-interposition)
  list(APPEND objects $<TARGET_OBJECTS:${part}>)
endforeach()
add_library(quire_client_archive STATIC ${objects})
set_target_properties(quire_client_archive PROPERTIES
  LINKER_LANGUAGE CXX OUTPUT_NAME quire_client EXPORT_NAME client)
target_compile_features(quire_client_archive INTERFACE cxx_std_20)
target_include_directories(quire_client_archive INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/quire/wire>)
target_link_libraries(quire_client_archive INTERFACE
  absl::cord absl::flat_hash_map absl::status absl::statusor absl::strings absl::time gRPC::grpc++ OpenSSL::Crypto
  OpenSSL::SSL protobuf::libprotobuf Threads::Threads)

# Headers: our own and those of our protos are in quire/. Those of other people's protos are in quire/wire/, where they
# do not meet the same headers of other libraries.
set(headers ${PROJECT_BINARY_DIR}/public_headers)
quire_public_headers(TARGET quire_client_headers FOLDER ${headers} HEADERS
  base/mutex.h client/library/client.h client/library/endpoint.h client/library/generate_batch_stream.h
  client/library/generate_streams.h client/library/manager_links.h client/policy/call_policy.h security/tls_files.h)
install(DIRECTORY ${headers}/ COMPONENT client-dev DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
get_target_property(generated quire_messages INTERFACE_INCLUDE_DIRECTORIES)
install(DIRECTORY ${generated}/quire/v1 COMPONENT client-dev DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quire
  FILES_MATCHING PATTERN *.h)
install(DIRECTORY ${generated}/google ${generated}/grpc COMPONENT client-dev
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quire/wire FILES_MATCHING PATTERN *.h)
set(QUIRE_PROTO_DIR ${CMAKE_INSTALL_DATADIR}/quire/proto)
install(DIRECTORY proto/quire proto/google proto/grpc COMPONENT client-dev DESTINATION ${QUIRE_PROTO_DIR})

# Files for CMake and pkg-config.
set(place ${CMAKE_INSTALL_LIBDIR}/cmake/Quire)
list(APPEND installed quire_client_archive quire_client_headers)
install(TARGETS quire_client_archive EXPORT QuireTargets COMPONENT client-dev
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT QuireTargets NAMESPACE Quire:: COMPONENT client-dev DESTINATION ${place})
configure_package_config_file(cmake/QuireConfig.cmake.in ${PROJECT_BINARY_DIR}/QuireConfig.cmake
  INSTALL_DESTINATION ${place} PATH_VARS QUIRE_PROTO_DIR)
# As long as the first number is 0, the second one changes with every change that a client may notice.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/QuireConfigVersion.cmake
  VERSION ${QUIRE_VERSION} COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH QUIRE_PREFIX_OF_PKGCONFIG /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" QUIRE_PREFIX_OF_PKGCONFIG "${QUIRE_PREFIX_OF_PKGCONFIG}")
configure_file(cmake/quire-client.pc.in ${PROJECT_BINARY_DIR}/quire-client.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/QuireConfig.cmake ${PROJECT_BINARY_DIR}/QuireConfigVersion.cmake
  COMPONENT client-dev DESTINATION ${place})
install(FILES ${PROJECT_BINARY_DIR}/quire-client.pc COMPONENT client-dev
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The Python package, with what is made from the protos. Without protobuf for Python there is no such component.
foreach(python IN ITEMS ${Python3_EXECUTABLE} /usr/bin/python3)
  if(NOT QUIRE_PYTHON)
    execute_process(COMMAND ${python} -c "import google.protobuf" RESULT_VARIABLE failed ERROR_QUIET)
    if(NOT failed)
      set(QUIRE_PYTHON ${python})
    endif()
  endif()
endforeach()
if(QUIRE_PYTHON)
  set(package ${PROJECT_BINARY_DIR}/python/quire)
  add_custom_command(
    OUTPUT ${package}/wire.desc ${package}/v1.pyi
    COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1
            ${QUIRE_PYTHON} client/python/make_wire.py proto ${package}
    DEPENDS client/python/make_wire.py quire_descriptors ${PROJECT_BINARY_DIR}/proto/quire.desc
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    VERBATIM)
  add_custom_target(quire_python_package ALL DEPENDS ${package}/wire.desc ${package}/v1.pyi)
  list(APPEND installed quire_python_package)
  install(DIRECTORY client/python/quire ${package} COMPONENT python
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/python3/dist-packages PATTERN __pycache__ EXCLUDE)
endif()

# Everything that is installed. ./quickstart builds this, so that `cmake --install` works after it.
add_custom_target(quire_installed)
add_dependencies(quire_installed ${installed})

# The licence, in the folder that each Debian package must have.
foreach(part runtime=quire client-dev=libquire-client-dev python=python3-quire)
  string(REGEX MATCH "(.*)=(.*)" part ${part})
  install(FILES deploy/debian/copyright LICENSE COMPONENT ${CMAKE_MATCH_1}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CMAKE_MATCH_2})
endforeach()

# The gateway contains marked (gateway/chat_page), whose licence asks to be copied with it.
if(QUIRE_MARKED)
  install(FILES /usr/share/doc/libjs-marked/copyright RENAME marked.copyright OPTIONAL COMPONENT runtime
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/quire)
endif()

include(cmake/packages.cmake)
