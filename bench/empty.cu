#include "empty.h"
#include "ops/cuda/ptx.cuh"

namespace dak::bench {
namespace {

__global__ void wait_only(int) {
    ptx::grid_launch_dependents();
    ptx::grid_wait();
}

}  // namespace

const void* empty_kernel() { return reinterpret_cast<const void*>(&wait_only); }

}  // namespace dak::bench
