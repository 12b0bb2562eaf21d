# SPDX-License-Identifier: Apache-2.0
# Debian packages of the components (docs/install.md): `cpack --config build/release/CPackConfig.cmake`.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quire)
set(CPACK_PACKAGE_VERSION ${QUIRE_VERSION})
set(CPACK_PACKAGE_VENDOR Quire)
set(QUIRE_MAINTAINER "the authors of Quire <quire@localhost>" CACHE STRING
  "Maintainer of the Debian packages: the name and address of whoever makes and distributes them")
set(CPACK_PACKAGE_CONTACT ${QUIRE_MAINTAINER})
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# The units and their configuration are in different trees, /usr and /etc.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_COMPONENTS_ALL runtime client-dev)
if(QUIRE_PYTHON)
  list(APPEND CPACK_COMPONENTS_ALL python)
endif()

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME quire)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION net)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
# For quire-download. A machine that only serves does not need it.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "python3, ca-certificates")
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "server for large language models
 quire, which serves a model with one command. The manager, the worker for CPUs,
 the gateway with the OpenAI interface, the command line client quirectl, the
 downloader quire-download, quire-quantize for checkpoints of 8 and 4 bits, and a
 small model.")
set(scripts ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
  ${scripts}/conffiles ${scripts}/postinst ${scripts}/postrm ${scripts}/prerm)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_NAME libquire-client-dev)
set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_DEPENDS
  "libabsl-dev, libgrpc++-dev, libprotobuf-dev, libssl-dev, protobuf-compiler, protobuf-compiler-grpc")
set(CPACK_DEBIAN_CLIENT-DEV_DESCRIPTION "client library of Quire for C++
 A static library with its headers, the protos, and files for CMake and
 pkg-config.")

set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-quire)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3 (>= 3.10), python3-grpcio, python3-protobuf")
set(CPACK_DEBIAN_PYTHON_DESCRIPTION "client of Quire for Python
 Clients with and without an event loop, with type hints.")
include(CPack)
