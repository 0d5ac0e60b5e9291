# Installs, beside the tool, every shared library that it needs and that is not glibc's, with the library's licence:
# the archive then runs on any x86-64 Linux with a glibc at least as new.
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${tool} RESOLVED_DEPENDENCIES_VAR libraries
  POST_EXCLUDE_REGEXES "/(ld-linux.*|lib(c|m|dl|rt|pthread))\\.so[.0-9]*$")
foreach(library ${libraries})
  file(INSTALL ${library} DESTINATION ${CMAKE_INSTALL_PREFIX}/${libraries_dir} FOLLOW_SYMLINK_CHAIN)
  file(REAL_PATH ${library} file)
  # By the end of its path: packages name /lib or /usr/lib, which are one folder.
  string(REGEX MATCH "/lib/.*" owned ${file})
  execute_process(COMMAND dpkg-query --search "*${owned}" OUTPUT_VARIABLE owner COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "^[^:]+" package ${owner})
  file(INSTALL /usr/share/doc/${package}/copyright DESTINATION ${CMAKE_INSTALL_PREFIX}/${licences_dir}
    RENAME ${package})
endforeach()
