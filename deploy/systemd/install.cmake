# SPDX-License-Identifier: Apache-2.0
# Installs the units of systemd and their configuration. `cmake --install` runs it, because the units name the folders,
# which are known only then. The prefix /usr has its configuration in /etc, every other one in its own folder etc.
# SOURCE is the folder of this file.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(ETC /etc/quire)
else()
  set(ETC ${CMAKE_INSTALL_PREFIX}/etc/quire)
endif()
set(PREFIX ${CMAKE_INSTALL_PREFIX})
set(units $ENV{DESTDIR}${PREFIX}/lib/systemd/system)
foreach(name manager worker openai)
  configure_file(${SOURCE}/quire-${name}.service.in ${units}/quire-${name}.service @ONLY)
  # A configuration that somebody has changed stays.
  set(file $ENV{DESTDIR}${ETC}/${name}.yaml)
  if(NOT EXISTS ${file})
    configure_file(${SOURCE}/${name}.yaml.in ${file} @ONLY)
  endif()
  message(STATUS "Installing: ${units}/quire-${name}.service and ${file}")
endforeach()
