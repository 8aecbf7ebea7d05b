#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <string_view>

#include "ops/cuda/check.h"

namespace dak::cuda {

struct LaunchShape {
    dim3 grid;
    unsigned threads = 0;
    unsigned shared_bytes = 0;  ///< dynamic
    unsigned cluster = 1;
};

/// Launches a kernel whose parameters `arguments` point at. With `programmatic` it may start while
/// the preceding kernel of the stream still runs. `what` names it in errors.
inline void launch_kernel(const void* kernel, const LaunchShape& shape, void** arguments,
                          cudaStream_t stream, bool programmatic, std::string_view what) {
    std::array<cudaLaunchAttribute, 2> attributes{};
    unsigned count = 0;
    if (programmatic) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.cluster > 1) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count++].val.clusterDim = {shape.cluster, 1, 1};
    }
    cudaLaunchConfig_t config{};
    config.gridDim = shape.grid;
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream;
    config.attrs = attributes.data();
    config.numAttrs = count;
    check(cudaLaunchKernelExC(&config, kernel, arguments), what);
}

/// The same for a kernel that takes one struct by value.
template <typename Params>
void launch(const void* kernel, const LaunchShape& shape, const Params& params, cudaStream_t stream,
            bool programmatic, std::string_view what) {
    void* arguments[] = {const_cast<Params*>(&params)};
    launch_kernel(kernel, shape, arguments, stream, programmatic, what);
}

inline int current_sms() {
    int device = 0, sms = 0;
    check(cudaGetDevice(&device), "current GPU");
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "number of SMs");
    return sms;
}

}  // namespace dak::cuda
