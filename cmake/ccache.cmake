# Objects that were compiled before, in whatever checkout, come from ccache where it is installed.
option(QKV_CCACHE "Use ccache" ON)
find_program(CCACHE ccache)
if(QKV_CCACHE AND CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # so that it sees precompiled headers
endif()
