# Compiler settings shared by every target, and the two functions that declare one.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()
# Every library links into shared objects too (the Python extension).
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(DAK_CCACHE ccache)
if(DAK_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${DAK_CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${DAK_CCACHE})
endif()

option(DAK_WARNINGS_AS_ERRORS "Let no warning of the compiler pass" ON)

add_library(dak_options INTERFACE)
target_compile_options(dak_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${DAK_WARNINGS_AS_ERRORS}>>:-Werror>
    # GCC 12 sees overlapping copies in std::string operator+ (its bug 105651).
    $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
if(DAK_SANITIZE)
    target_compile_options(dak_options INTERFACE
        $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-sanitize-recover=all
        -fno-omit-frame-pointer>)
    target_compile_definitions(dak_options INTERFACE _GLIBCXX_ASSERTIONS)
    target_link_options(dak_options INTERFACE -fsanitize=address,undefined)
endif()
if(DAK_FUZZERS)
    # Coverage of our own code guides the fuzzer.
    target_compile_options(dak_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# dak_library(name SOURCES ... PUBLIC deps ... PRIVATE deps ...)
# A library of one layer. It sees the headers of the layers it names, and of no other.
function(dak_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
    add_library(${name} STATIC ${ARG_SOURCES})
    target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE dak_options ${ARG_PRIVATE})
endfunction()

# dak_test(name SOURCES ... LIBS ... [LABELS ...])
# One GoogleTest executable; every test in it becomes a ctest test.
function(dak_test name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;LABELS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_LIBS} dak_options GTest::gtest_main GTest::gmock)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${name} PRIVATE DAK_TEST_DATA="${PROJECT_SOURCE_DIR}/tests")
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${ARG_LABELS}")
endfunction()
include(GoogleTest)
