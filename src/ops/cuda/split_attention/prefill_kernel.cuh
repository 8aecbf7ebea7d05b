#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/params.h"
#include "ops/cuda/split_attention/prefill_consumer.cuh"
#include "ops/cuda/split_attention/prefill_load.cuh"
#include "ops/cuda/split_attention/prefill_tile.cuh"

// Several new tokens of every sequence over its cached keys and values, causal: bound by the matrix
// units.
//
// Tile       128 query rows of one sequence and KV head: (token, query head) pairs, the heads of a
//            group next to each other, so that K and V are read once for the whole group.
// Grid       one CTA per SM; CTAs take tiles from a counter, those of the last tokens (the longest)
//            first, head by head, so that tiles that run together share K and V in L2.
// Block      384 threads: warpgroup 0 loads (warp 0 hands out tiles and streams K and V, warps 1-3
//            load queries), warpgroups 1 and 2 compute 64 rows each.
// Shared     queries of one or two tiles, and two stages each of K and of V blocks of kTokens
// tokens. All are cut into
//            panels as in a page, [panel][rows][128 bytes], as wgmma takes them.
// Barriers   full/empty pair per stage, for the queries and for the tile; named barriers 1 and 2:
//            a warpgroup's turn at the matrix units, so that one's softmax runs under the other's
//            products.
//
// Bytes      K and V of a local page once per tile that sees it, mostly from L2. Remote pages cross
//            the link once: copy_kernel.cu copies them beside this kernel, which waits for each.
//            Those for which there is no room are read in place, once per tile.
//
// Blocks are taken from the last to the first, so that only the first ones need a causal mask and
// the tokens past the end, whose values must be zeroed, are in the first one. The products of a
// block's scores are issued before those of the values of the block before it, and the softmax runs
// under the latter.

namespace dak::cuda {

template <typename Element, int kHeadDim>
__global__ void __launch_bounds__(kPrefillAttentionThreads, 1)
    prefill_attention(const __grid_constant__ PrefillAttentionParams p) {
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ __align__(8) uint64_t barriers[PrefillShared::kBarriers];
    __shared__ int tile[6];
    __shared__ int starts[kMaxSequences + 1];
    const auto shared = PrefillShared::of<kHeadDim>(memory, barriers, tile, starts);
    if (threadIdx.x == 0) shared.init_barriers();
    // The kernel that copies pages has waited for all before it, and has not finished itself.
    const bool copying = p.copies.capacity > 0;
    if (!copying) {
        ptx::grid_launch_dependents();
        ptx::grid_wait();
    }
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp < 4) {
        ptx::decrease_registers<kHeadDim == 256 ? 56 : 72>();
        if (warp == 0) {
            KvLoader<kHeadDim>(p, shared, static_cast<int>(threadIdx.x)).run();
        } else {
            load_tile_queries<kHeadDim>(p, shared, static_cast<int>(threadIdx.x) - 32);
        }
    } else {
        ptx::increase_registers<kHeadDim == 256 ? 224 : 216>();
        PrefillConsumer<Element, kHeadDim>(p, shared, warp / 4 - 1,
                                           static_cast<int>(threadIdx.x) % 128)
            .run();
    }
    if (copying) ptx::grid_wait();
}

}  // namespace dak::cuda
