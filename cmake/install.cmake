# The command, and the library for find_package(gcomp CONFIG): static libraries, headers, and a package file that finds its own
# prefix, so that the whole may be moved.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/gcomp)

install(TARGETS gcomp gcomp-opt RUNTIME)
install(TARGETS gcomp_options gcomp_base gcomp_ir gcomp_passes gcomp_runtime gcomp_onednn gcomp_loaded gcomp_codegen gcomp_frontend gcomp_onnx_proto
                gcomp_program_proto gcomp_api
        EXPORT gcompTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT gcompTargets NAMESPACE gcomp:: DESTINATION ${package})

# Headers keep their place below one folder: #include <gcomp/gcomp.h>, which includes "ir/builder.h" and the like.
install(DIRECTORY gcomp ir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gcomp FILES_MATCHING PATTERN "*.h")
install(FILES frontend/import_options.h frontend/layers.h frontend/model.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gcomp/frontend)
install(FILES frontend/onnx/import.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gcomp/frontend/onnx)
install(FILES codegen/program_limits.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gcomp/codegen)
install(FILES passes/training/training.h passes/training/loss_scaling.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gcomp/passes)
foreach(header program device instruction_set executable library_search state_memory artifact artifact_trust)
  install(FILES runtime/${header}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gcomp/runtime)
endforeach()
foreach(header npz npy zip_archive atomic_file descriptor left_behind)
  install(FILES runtime/files/${header}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gcomp/runtime/files)
endforeach()

configure_package_config_file(cmake/gcompConfig.cmake.in ${PROJECT_BINARY_DIR}/gcompConfig.cmake INSTALL_DESTINATION ${package}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gcompConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gcompConfig.cmake ${PROJECT_BINARY_DIR}/gcompConfigVersion.cmake cmake/Finddnnl.cmake DESTINATION ${package})
