# Neighbouring sources of a folder are compiled together. Most of the time to compile one goes into headers and
# templates, which they have in common. Names in unnamed namespaces are therefore unique within a folder; the build
# fails where two are not. -DQKV_UNITY=OFF compiles each source by itself, as `make tidy` does.
option(QKV_UNITY "Compile neighbouring sources together, in half the time" ON)

# qkv_unity(TARGET FILES SOURCE...): compiles up to FILES neighbours of each folder together.
function(qkv_unity target files)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${QKV_UNITY} UNITY_BUILD_MODE GROUP)
  set(sources ${ARGN})
  list(SORT sources)
  set(last "")
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    file(RELATIVE_PATH room ${PROJECT_SOURCE_DIR} ${folder})
    string(REPLACE "/" "_" room ${room})
    if(NOT room STREQUAL last)
      set(count 0)
    endif()
    math(EXPR group "${count} / ${files}")
    math(EXPR count "${count} + 1")
    set(last ${room})
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${room}_${group})
  endforeach()
endfunction()
