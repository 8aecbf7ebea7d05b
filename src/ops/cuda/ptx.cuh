#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

/// One function per PTX instruction the kernels use (sm_90a). Shared memory is addressed by its
/// 32-bit shared-window address throughout.
namespace dak::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Tells the compiler that all lanes of the warp hold the same value.
__device__ __forceinline__ int same_in_warp(int value) {
    return __shfl_sync(0xffffffffu, value, 0);
}

// ---- bounded waiting ------------------------------------------------------------------------

/// Longest wait of any kind before a kernel gives up, in 2^32 cycles: about 10 s at 1.7 GHz, far
/// beyond the slowest legitimate operation (a whole weight over a slow link, under a memory
/// checker), so that a fault ends in an error and never in a hang.
inline constexpr uint32_t kWaitLimit = 4;

__device__ __forceinline__ uint32_t cycles_high() {
    uint32_t value;
    asm volatile("mov.u32 %0, %%clock_hi;" : "=r"(value));
    return value;
}

/// Ends the kernel with "an illegal memory access". A trap instruction would say it better, but one
/// anywhere in a kernel makes ptxas allocate all its warps the registers of the launch bound and
/// spill what setmaxnreg was to give (168 instead of 232 in the prefill kernel).
__device__ __forceinline__ void give_up() { *reinterpret_cast<volatile uint32_t*>(0) = 0; }

class WaitLimit {
  public:
    __device__ __forceinline__ WaitLimit() : start_(cycles_high()) {}
    __device__ __forceinline__ void check() const {
        if (cycles_high() - start_ > kWaitLimit) give_up();
    }

  private:
    uint32_t start_;
};

// ---- mbarrier -------------------------------------------------------------------------------

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/// Makes initialised barriers visible to the copy engine and to the other CTAs of the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// `barrier` is a cluster-window address (map_to_rank). Default semantics: cluster-scope release
/// is 25-50% slower and the data that this guards is read by the asynchronous proxy anyway.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
}

/// Waits until the phase of the given parity has completed.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
    if (mbarrier_try_wait(barrier, parity)) return;
    const WaitLimit limit;
    while (!mbarrier_try_wait(barrier, parity)) limit.check();
}

// ---- named barriers -------------------------------------------------------------------------

__device__ __forceinline__ void barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- clusters -------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/// Cluster-window address of the same shared-memory location in CTA `rank` of the cluster.
__device__ __forceinline__ uint32_t map_to_rank(uint32_t address, uint32_t rank) {
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
/// Waits until every thread of the cluster that has not exited has arrived.
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

/// To shared memory of a CTA of the cluster; 16 bytes are counted on `barrier` there. Both are
/// cluster-window addresses of that CTA.
__device__ __forceinline__ void store_async(uint32_t address, float4 v, uint32_t barrier) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::
            "r"(address),
        "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float4 v) {
    asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address), "f"(v.x), "f"(v.y),
                 "f"(v.z), "f"(v.w)
                 : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, uint32_t v) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

__device__ __forceinline__ float4 load_shared(uint32_t address) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

/// `address` is a cluster-window address.
__device__ __forceinline__ float4 load_shared_cluster(uint32_t address) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

// ---- bulk copies (TMA) ----------------------------------------------------------------------

/// L2 policies for bulk copies.
__device__ __forceinline__ uint64_t policy_evict_first() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ uint64_t policy_evict_normal() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/// Global to shared; addresses and `bytes` are multiples of 16; counts on `barrier`.
__device__ __forceinline__ void bulk_load(uint32_t destination, const void* source, uint32_t bytes,
                                          uint32_t barrier, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1], %2, [%3], %4;" ::"r"(destination),
        "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
}

/// The same, delivered at the same offset of every CTA in `cta_mask`, each counting on its own
/// barrier at the same offset.
__device__ __forceinline__ void bulk_load_multicast(uint32_t destination, const void* source,
                                                    uint32_t bytes, uint32_t barrier,
                                                    uint16_t cta_mask, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(destination),
        "l"(source), "r"(bytes), "r"(barrier), "h"(cta_mask), "l"(policy)
        : "memory");
}

/// Box of a 2-D tensor map whose corner is (`column`, `row`); outside the tensor it reads zeros.
__device__ __forceinline__ void tensor_load(uint32_t destination, const CUtensorMap& map,
                                            int column, int row, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(destination),
        "l"(&map), "r"(column), "r"(row), "r"(barrier)
        : "memory");
}

/// The same, delivered at the same offset of every CTA in `cta_mask`, each counting on its own
/// barrier at the same offset.
__device__ __forceinline__ void tensor_load_multicast(uint32_t destination, const CUtensorMap& map,
                                                      int column, int row, uint32_t barrier,
                                                      uint16_t cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(destination),
        "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(cta_mask)
        : "memory");
}

/// Shared to global; what lies outside the tensor is not written. Completes with the bulk group.
__device__ __forceinline__ void tensor_store(const CUtensorMap& map, int column, int row,
                                             uint32_t source) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            &map),
        "r"(column), "r"(row), "r"(source)
        : "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most `kPending` groups still read shared memory.
template <int kPending>
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// Orders generic writes to shared memory before asynchronous reads of it.
__device__ __forceinline__ void fence_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- programmatic dependent launch ----------------------------------------------------------

/// Waits until the preceding grid of the stream has finished and its writes are visible.
__device__ __forceinline__ void grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Lets the next grid of the stream start as soon as there is room.
__device__ __forceinline__ void grid_launch_dependents() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// Fetches `bytes`, both multiples of 16, into the L2.
__device__ __forceinline__ void prefetch_l2(const void* from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// ---- loads that stay where they are written ------------------------------------------------
// What an epilogue takes: asked for long before it is used, which a compiler would undo.

__device__ __forceinline__ float load_now(const float* from) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from));
    return value;
}

__device__ __forceinline__ uint16_t load_now(const uint16_t* from) {
    uint16_t value;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(value) : "l"(from) : "memory");
    return value;
}

// ---- flags between CTAs ---------------------------------------------------------------------

__device__ __forceinline__ uint32_t load_acquire(const uint32_t* flag) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

__device__ __forceinline__ void store_release(uint32_t* flag, uint32_t value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ void wait_flag(const uint32_t* flag) {
    if (load_acquire(flag) != 0) return;
    const WaitLimit limit;
    while (load_acquire(flag) == 0) limit.check();
}

// ---- wgmma ----------------------------------------------------------------------------------

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving uses of accumulators across this point: wgmma writes them
/// behind its back until the group has been waited for.
template <int kCount>
__device__ __forceinline__ void pin(float (&values)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

/// Descriptor of a K-major operand in 128-byte-swizzled rows of 128 bytes: 1,024 bytes from one
/// group of 8 rows to the next. Adding bytes >> 4 moves it; its low half is all that this changes.
__device__ __forceinline__ uint32_t operand_low(uint32_t address) {
    constexpr uint32_t kUnusedLeadingStride = 1u << 16;
    return kUnusedLeadingStride | (address >> 4);
}
__device__ __forceinline__ uint64_t operand_of_low(uint32_t low) {
    constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
    constexpr uint64_t kGroupStride = uint64_t{1024 >> 4} << 32;
    return kSwizzle128 | kGroupStride | low;
}
__device__ __forceinline__ uint64_t operand(uint32_t address) {
    return operand_of_low(operand_low(address));
}

/// Four 8x8 matrices of 16-bit values, each transposed on its way to shared memory.
__device__ __forceinline__ void store_matrix_transposed(uint32_t address, uint32_t a, uint32_t b,
                                                        uint32_t c, uint32_t d) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
        "r"(a), "r"(b), "r"(c), "r"(d)
        : "memory");
}

/// Registers of a warpgroup: the compiler's even share is too much for a producer that only
/// issues copies and too little for consumers that hold accumulators.
template <int kRegisters>
__device__ __forceinline__ void decrease_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void increase_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace dak::ptx
