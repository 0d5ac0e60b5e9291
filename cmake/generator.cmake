# Read by cpack once for each kind of package: Debian's leaves shared libraries to its dependencies, the archive
# brings them along.
set(CPACK_COMPONENTS_ALL qkv)
set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY OFF)
if(CPACK_GENERATOR STREQUAL "TGZ")
  list(APPEND CPACK_COMPONENTS_ALL bundle)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
