# Destinations of `make install` and `make package`: the tool, the library with its headers, the examples.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME qkv)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/qkv)

# Shared libraries stand beside the tool in the archive only (bundle.cmake). An RPATH, not a RUNPATH: oneDNN finds
# what it needs itself by the former alone.
set_target_properties(qkv_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/qkv")
target_link_options(qkv_cli PRIVATE -Wl,--disable-new-dtags)
install(TARGETS qkv_cli)

# The manual page and the bash completion are made from the tool's help.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
install(CODE "execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/man_page.py $<TARGET_FILE:qkv_cli>
  OUTPUT_FILE ${PROJECT_BINARY_DIR}/qkv.1 COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/completion.py $<TARGET_FILE:qkv_cli>
  OUTPUT_FILE ${PROJECT_BINARY_DIR}/qkv.bash COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${PROJECT_BINARY_DIR}/qkv.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_BINARY_DIR}/qkv.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME qkv)

install(TARGETS qkv EXPORT qkv INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Headers that docs/library.md names, and what they include.
install(CODE "
  execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/public_headers.py ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE headers OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE \"\\n\" \";\" headers \"\${headers}\")
  foreach(header \${headers})
    get_filename_component(folder \${header} DIRECTORY)
    file(INSTALL ${PROJECT_SOURCE_DIR}/\${header} DESTINATION \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/\${folder})
  endforeach()")
install(EXPORT qkv NAMESPACE qkv:: FILE qkvTargets.cmake DESTINATION ${package_dir})

configure_package_config_file(cmake/qkvConfig.cmake.in qkvConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(qkvConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/qkvConfig.cmake ${PROJECT_BINARY_DIR}/qkvConfigVersion.cmake
  DESTINATION ${package_dir})

# From the folder of qkv.pc back to the prefix, so that an installed tree may be moved.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/qkv.pc.in qkv.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/qkv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Every page and picture that an installed page links.
file(GLOB pages *.md)
install(FILES LICENSE ${pages} DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN Doxyfile EXCLUDE)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN __pycache__ EXCLUDE)

install(CODE "
  set(tool $<TARGET_FILE:qkv_cli>)
  set(libraries_dir ${CMAKE_INSTALL_LIBDIR}/qkv)
  set(licences_dir ${CMAKE_INSTALL_DOCDIR}/licences)" COMPONENT bundle EXCLUDE_FROM_ALL)
install(SCRIPT cmake/bundle.cmake COMPONENT bundle EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_CONTACT "qkv developers <qkv@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train and run transformers natively")
set(CPACK_PACKAGE_DESCRIPTION "One command-line tool and one C++20 library, from raw text to a trained model and the
text it writes. Models are Hugging Face directories.")
set(CPACK_PACKAGE_FILE_NAME qkv-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/generator.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# For programs that link the library: the tool itself does without.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, cmake | pkg-config, libdnnl-dev, libfmt-dev, libhwy-dev, libpcre2-dev, \
libsentencepiece-dev, libtomlplusplus-dev, libutf8proc-dev, libzstd-dev, nlohmann-json3-dev, ocl-icd-opencl-dev, \
zlib1g-dev")
include(CPack)
