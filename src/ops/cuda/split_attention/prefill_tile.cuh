#pragma once

#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/params.h"

// A tile of the prefill kernel, and the shared memory in which its warps meet.

namespace dak::cuda {

inline constexpr int kQueryLoaders = 96;

/// A tile, as the loading warp hands it out.
struct PrefillTile {
    int sequence;  ///< -1: there are no more
    int kv_head;
    int first_row;  ///< packed: new token * head_group + query head of the group
    int rows;       ///< packed rows of the sequence
    int query_row;  ///< row of q of the sequence's first new token
    int past;       ///< tokens in the cache before it

    __device__ __forceinline__ int position(const PrefillAttentionParams& p, int row) const {
        return past + smaller(first_row + row, rows - 1) / p.head_group;
    }
    /// Tokens that any of its rows sees.
    __device__ __forceinline__ int begin(const PrefillAttentionParams& p) const {
        return p.sliding_window > 0 ? larger(0, position(p, 0) + 1 - p.sliding_window) : 0;
    }
    __device__ __forceinline__ int end(const PrefillAttentionParams& p) const {
        return position(p, kPrefillTileRows - 1) + 1;
    }
};

template <int kStages>
struct StagePosition {
    uint32_t stage = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

struct PrefillShared {
    uint32_t queries, keys, values;
    uint32_t k_full, k_empty, v_full, v_empty, query_full, query_empty, tile_full, tile_empty;
    volatile int* tile;  ///< PrefillTile
    int* starts;         ///< [sequences + 1] tiles of all sequences before, one KV head

    static constexpr int kQueryStages = 2;  // at most
    static constexpr int kBarriers = 4 * kKvStages + 2 * kQueryStages + 2;

    template <int kHeadDim>
    static __device__ __forceinline__ PrefillShared of(void* memory, void* barriers, int* tile,
                                                       int* starts) {
        constexpr uint32_t kBlock = prefill_block_tokens(kHeadDim) * kHeadDim * 2;
        PrefillShared s;
        s.queries = ptx::shared_address(memory);
        s.keys = s.queries + prefill_query_stages(kHeadDim) * kPrefillTileRows * kHeadDim * 2;
        s.values = s.keys + kKvStages * kBlock;
        s.k_full = ptx::shared_address(barriers);
        s.k_empty = s.k_full + 8 * kKvStages;
        s.v_full = s.k_empty + 8 * kKvStages;
        s.v_empty = s.v_full + 8 * kKvStages;
        s.query_full = s.v_empty + 8 * kKvStages;
        s.query_empty = s.query_full + 8 * kQueryStages;
        s.tile_full = s.query_empty + 8 * kQueryStages;
        s.tile_empty = s.tile_full + 8;
        s.tile = tile;
        s.starts = starts;
        return s;
    }

    __device__ __forceinline__ void init_barriers() const {
        for (int i = 0; i < kKvStages; ++i) {
            ptx::mbarrier_init(k_full + 8 * i, 1);
            ptx::mbarrier_init(v_full + 8 * i, 1);
            ptx::mbarrier_init(k_empty + 8 * i, 8);
            ptx::mbarrier_init(v_empty + 8 * i, 8);
        }
        for (int i = 0; i < kQueryStages; ++i) {
            ptx::mbarrier_init(query_full + 8 * i, kQueryLoaders);
            ptx::mbarrier_init(query_empty + 8 * i, 8);
        }
        ptx::mbarrier_init(tile_full, 1);
        ptx::mbarrier_init(tile_empty, 11);  // every warp but the one that hands out
        ptx::fence_mbarrier_init();
    }

    /// The next tile, for all lanes of a warp; `parity` is flipped.
    __device__ __forceinline__ PrefillTile next_tile(uint32_t& parity, int lane) const {
        ptx::mbarrier_wait(tile_full, parity);
        parity ^= 1;
        const PrefillTile t = {tile[0], tile[1], tile[2], tile[3], tile[4], tile[5]};
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(tile_empty);
        return t;
    }
};

}  // namespace dak::cuda
