# The command, and the library for find_package(gcomp CONFIG): static libraries, headers, and a package file that finds its own
# prefix, so that the whole may be moved.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/gcomp)

install(TARGETS gcomp gcomp-opt RUNTIME)
if(TARGET gcomp_mpi)
  install(TARGETS gcomp_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(TARGETS gcomp_options gcomp_base gcomp_ir gcomp_passes gcomp_runtime gcomp_loaded gcomp_data gcomp_codegen gcomp_frontend gcomp_onnx_proto
                gcomp_program_proto gcomp_events_proto gcomp_api
        EXPORT gcompTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT gcompTargets NAMESPACE gcomp:: DESTINATION ${package})

# The public headers, which include one another and the standard library (tests/check_includes): #include <gcomp/gcomp.h>.
file(GLOB public_headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/gcomp/*.h)
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gcomp)

configure_package_config_file(cmake/gcompConfig.cmake.in ${PROJECT_BINARY_DIR}/gcompConfig.cmake INSTALL_DESTINATION ${package}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gcompConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gcompConfig.cmake ${PROJECT_BINARY_DIR}/gcompConfigVersion.cmake DESTINATION ${package})
