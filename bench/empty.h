#pragma once

namespace dak::bench {

/// For cudaLaunchKernelExC: (int); waits for its predecessor and does nothing, which is what a
/// launch costs.
const void* empty_kernel();

}  // namespace dak::bench
