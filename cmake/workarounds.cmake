# Options of single sources.
set_source_files_properties(qkv/base/version.cc PROPERTIES COMPILE_DEFINITIONS QKV_VERSION="${PROJECT_VERSION}")

# Called only where the processor has these (qkv/kernels/tile/available.cc). GCC 12 takes fright at its own headers.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(qkv/kernels/tile/block.cc qkv/kernels/tile/groups.cc
    qkv/kernels/tile/share.cc PROPERTIES COMPILE_OPTIONS
    "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512bf16;-mamx-tile;-mamx-bf16;-mamx-int8;$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized$<SEMICOLON>-Wno-maybe-uninitialized>")
endif()

# Rounds as the published code does, whose bytes these files reproduce.
file(GLOB QKV_QUANTIZERS CONFIGURE_DEPENDS qkv/quant/*quantize*.cc)
set_property(SOURCE ${QKV_QUANTIZERS} APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=off)

# Headers alone: nothing to link or install.
list(TRANSFORM EIGEN_INCLUDE_DIRS PREPEND "-isystem" OUTPUT_VARIABLE eigen_options)
set_property(SOURCE qkv/trace/circuits.cc APPEND PROPERTY COMPILE_OPTIONS ${eigen_options})
# GCC 12 believes at -O0 that it optimises where a precompiled header comes first: then _mm_prefetch does not compile.
set_property(SOURCE qkv/trace/circuits.cc PROPERTY SKIP_PRECOMPILE_HEADERS ON)

# These define macros for the headers that they include.
file(GLOB QKV_TARGETS CONFIGURE_DEPENDS qkv/kernels/cpu/*_avx*.cc)
set_property(SOURCE ${QKV_TARGETS} qkv/base/hash.cc qkv/text/regex.cc PROPERTY QKV_ALONE ON)
# Operators with loops of their own, whose Problem, Slot, Lanes and Run mean something else in each.
foreach(op attention_free fast_weights fast_weights_chunks hashed_attention recurrence selective_scan source_attention wkv)
  set_property(SOURCE qkv/ops/${op}.cc PROPERTY QKV_ALONE ON)
endforeach()

# GCC 12 takes ten minutes to allocate registers for kernels whose every access ASan checks in place; calls take one.
if(QKV_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set_property(SOURCE qkv/kernels/cpu/quantized_avx2.cc qkv/kernels/cpu/quantized_avx512.cc APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize-address-use-after-scope
    --param=asan-instrumentation-with-call-threshold=0)
endif()
if(QKV_SANITIZE)  # checks of JSON templates that no test is about would take minutes to compile
  set_source_files_properties(qkv/base/json.cc PROPERTIES COMPILE_OPTIONS "-O0;-fno-sanitize=undefined"
    SKIP_PRECOMPILE_HEADERS ON)
endif()
