# The CUDA parts are built where nvcc is; elsewhere, and in builds with the compilers' sanitizers
# (compute-sanitizer serves the GPU), they are left out and one line says so.

include(CheckLanguage)
set(DAK_CUDA OFF)
if(NOT DAK_SANITIZE)
    check_language(CUDA)
endif()
if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # -gencode below: 90a carries wgmma and setmaxnreg
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know nvcc 13's
    set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} -gencode=arch=compute_90a,code=sm_90a -lineinfo")
    set(DAK_CUDA ON)
    message(STATUS "DAK: CUDA ${CMAKE_CUDA_COMPILER_VERSION} found, building the CUDA parts")
elseif(NOT DAK_SANITIZE)
    message(STATUS "DAK: no nvcc found, leaving out the CUDA parts (CPU execution only)")
endif()
