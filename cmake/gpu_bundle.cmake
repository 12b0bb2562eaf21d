# SPDX-License-Identifier: Apache-2.0
# The target make_gpu_bundle packs what tools/gpu_check --prebuilt needs (tools/make_gpu_bundle). The packed programs
# find the packed libraries, and these find each other, in the folder lib beside the folder of the programs.
set(bundled_programs gpu_speed gpu_step quire_manager quire_quantize quire_worker quirectl quire_cuda)
foreach(target gpu_test ${bundled_programs})
  # A DT_RUNPATH, which linkers write today, would not hold for the libraries of a library. A DT_RPATH does.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
endforeach()
install(TARGETS ${bundled_programs} COMPONENT gpu_bundle EXCLUDE_FROM_ALL
  RUNTIME DESTINATION bin LIBRARY DESTINATION bin)
install(TARGETS gpu_test COMPONENT gpu_bundle EXCLUDE_FROM_ALL RUNTIME DESTINATION tests)
add_custom_target(make_gpu_bundle
  COMMAND ${PROJECT_SOURCE_DIR}/tools/make_gpu_bundle ${PROJECT_BINARY_DIR}
  DEPENDS gpu_test ${bundled_programs}
  USES_TERMINAL VERBATIM)
