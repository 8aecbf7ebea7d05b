#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/kv_block.cuh"
#include "ops/cuda/split_attention/prefill_tile.cuh"

namespace dak::cuda {

/// Hands out tiles and streams their keys and values.
template <int kHeadDim>
class KvLoader {
  public:
    __device__ __forceinline__ KvLoader(const PrefillAttentionParams& p,
                                        const PrefillShared& shared, int lane)
        : p_(p), shared_(shared), lane_(lane) {}

    __device__ __forceinline__ void run() {
        if (p_.copies.capacity > 0) epoch_ = *p_.copies.epoch + 1;
        count_tiles();
        take_tile();
        publish();
        while (next_.sequence >= 0) load();
    }

  private:
    static constexpr int kTokens = prefill_block_tokens(kHeadDim);
    static constexpr uint32_t kBlock = kTokens * kHeadDim * 2;

    /// Tiles of one KV head, sequence by sequence.
    __device__ __forceinline__ void count_tiles() {
        int total = 0;
        for (int base = 0; base < p_.sequences; base += 32) {
            const int s = base + lane_;
            int tiles = 0;
            if (s < p_.sequences) {
                const int rows = (p_.query_starts[s + 1] - p_.query_starts[s]) * p_.head_group;
                tiles = (rows + kPrefillTileRows - 1) / kPrefillTileRows;
            }
            int sum = tiles;
#pragma unroll
            for (int offset = 1; offset < 32; offset *= 2) {
                const int other = __shfl_up_sync(~0u, sum, offset);
                if (lane_ >= offset) sum += other;
            }
            if (s < p_.sequences) shared_.starts[s] = total + sum - tiles;
            total += __shfl_sync(~0u, sum, 31);
        }
        if (lane_ == 0) shared_.starts[p_.sequences] = total;
        __syncwarp();
        tiles_ = total * p_.kv_heads;
    }

    /// Makes the next tile known to this warp, with the first entries of its page table.
    __device__ __forceinline__ void take_tile() {
        int index = 0;
        if (lane_ == 0) index = static_cast<int>(atomicAdd(p_.counters, 1u));
        index = __shfl_sync(~0u, index, 0);
        if (index >= tiles_) {
            if (lane_ == 0) leave();
            next_.sequence = -1;
            return;
        }
        int low = 0, high = p_.sequences - 1;  // the last sequence that starts at or before it
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (shared_.starts[middle] * p_.kv_heads <= index) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        const int query_row = p_.query_starts[low];
        const int new_tokens = p_.query_starts[low + 1] - query_row;
        const int length = p_.lengths[low];
        const int tiles = shared_.starts[low + 1] - shared_.starts[low];
        const int rest = index - shared_.starts[low] * p_.kv_heads;
        next_.sequence = low;
        next_.kv_head = rest / tiles;
        next_.first_row = (tiles - 1 - rest % tiles) * kPrefillTileRows;
        next_.rows = new_tokens * p_.head_group;
        next_.query_row = query_row;
        next_.past = length - new_tokens;
        next_entries_.begin = next_.begin(p_);
        next_entries_.end = next_.end(p_);
        load_entries(next_, next_entries_, (next_entries_.end - 1) / kTokens);
    }

    /// Hands the next tile to the other warps once they have all taken the one before.
    __device__ __forceinline__ void publish() {
        ptx::mbarrier_wait(shared_.tile_empty, tile_parity_);
        tile_parity_ ^= 1;
        if (lane_ == 0) {
            const int words[6] = {next_.sequence, next_.kv_head,   next_.first_row,
                                  next_.rows,     next_.query_row, next_.past};
            for (int i = 0; i < 6; ++i) shared_.tile[i] = words[i];
            ptx::mbarrier_arrive(shared_.tile_full);
        }
        __syncwarp();
    }

    /// The last CTA to leave readies the counters for the next kernel.
    __device__ __forceinline__ void leave() {
        if (atomicAdd(p_.counters + 1, 1u) + 1 < gridDim.x) return;
        p_.counters[0] = 0;
        p_.counters[1] = 0;
        if (p_.copies.capacity > 0) *p_.copies.epoch = epoch_;
    }

    /// Entries of a tile's page table. Lane i has that of page `window` + i: a page, or the copy of
    /// one, which may not be there yet.
    struct Entries {
        int begin, end;  ///< tokens that the tile sees
        int window = 0;
        int page = 0;
        const uint32_t* flag = nullptr;
    };
    static constexpr int kPages = kTokens / 64;  // of a block
    struct Block {
        int low, high;  ///< tokens of the block that the tile sees
        int pages[kPages];
    };

    /// The entries whose last ones are those of `block`.
    __device__ __forceinline__ void load_entries(const PrefillTile& tile, Entries& entries,
                                                 int block) const {
        entries.window = larger(0, (block + 1) * kPages - 32);
        entries.flag = nullptr;
        const int i = entries.window + lane_;
        if (i < entries.begin / 64 || i > (entries.end - 1) / 64) return;
        entries.page = p_.pages[tile.sequence * p_.pages_stride + i];
        if (entries.page >= p_.num_local_pages) {
            find_copy(tile, i, entries.page, entries.flag);
        }
    }

    __device__ __forceinline__ Block find_block(const PrefillTile& tile, Entries& entries,
                                                int block) const {
        const int first_page = block * kPages;
        if (first_page < entries.window) load_entries(tile, entries, block);
        if (p_.copies.capacity > 0) {
            const int in_block = entries.window + lane_ - first_page;
            wait_for_copies(entries.flag, in_block >= 0 && in_block < kPages);
        }
        Block found;
        found.low = larger(entries.begin, block * kTokens) - block * kTokens;
        found.high = smaller(entries.end, (block + 1) * kTokens) - block * kTokens;
#pragma unroll
        for (int i = 0; i < kPages; ++i) {
            found.pages[i] = __shfl_sync(~0u, entries.page, first_page + i - entries.window);
        }
        return found;
    }

    /// Streams the next tile, in the order in which its blocks are used: keys are one block ahead
    /// of values. The tile after it is looked up when the stages are full, but not sooner than
    /// needed: what one CTA has taken no other can.
    __device__ __forceinline__ void load() {
        const PrefillTile tile = next_;
        Entries entries = next_entries_;
        const int first = (entries.end - 1) / kTokens, last = entries.begin / kTokens;
        Block values = find_block(tile, entries, first);
        load_keys(tile, values);
        for (int block = first - 1; block >= last; --block) {
            const Block keys = find_block(tile, entries, block);
            load_keys(tile, keys);
            load_values(tile, values);
            values = keys;
        }
        if (first > last) take_tile();
        load_values(tile, values);
        if (first == last) take_tile();
        publish();
    }

    /// If the remote page that is entry `i` of the table has a copy, makes `page` -1 - its slot.
    __device__ __forceinline__ void find_copy(const PrefillTile& tile, int i, int& page,
                                              const uint32_t*& flag) const {
        if (p_.copies.capacity == 0) return;
        const int slot = p_.copies.slots[int64_t{tile.sequence} * p_.copies.slot_stride + i];
        if (slot < 0) return;
        page = -1 - slot;
        flag = p_.copies.flags + int64_t{slot} * p_.kv_heads + tile.kv_head;
    }

    /// Waits for the copies of the lanes that say so; those that are there lose their flag.
    __device__ __forceinline__ void wait_for_copies(const uint32_t*& flag, bool needed) const {
        if (!__any_sync(~0u, needed && flag != nullptr)) return;
        const ptx::WaitLimit limit;
        do {
            if (flag != nullptr && ptx::load_acquire(flag) == epoch_) flag = nullptr;
            limit.check();
        } while (__any_sync(~0u, needed && flag != nullptr));
        ptx::fence_async();
        __syncwarp();
    }

    __device__ __forceinline__ void load_keys(const PrefillTile& tile, const Block& block) {
        ptx::mbarrier_wait(shared_.k_empty + 8 * keys_.stage, keys_.parity ^ 1);
        issue(shared_.keys + keys_.stage * kBlock, shared_.k_full + 8 * keys_.stage, tile, block,
              0);
        keys_.advance();
    }

    /// Values outside the block's tokens are zeroed, because what was there may be NaN, which a
    /// weight of zero does not make zero.
    __device__ __forceinline__ void load_values(const PrefillTile& tile, const Block& block) {
        const uint32_t to = shared_.values + values_.stage * kBlock;
        ptx::mbarrier_wait(shared_.v_empty + 8 * values_.stage, values_.parity ^ 1);
        if (block.low > 0 || block.high < kTokens) {
            zero_rows(to, 0, block.low);
            zero_rows(to, block.high, kTokens);
            ptx::fence_async_shared();
        }
        issue(to, shared_.v_full + 8 * values_.stage, tile, block, kv_block_bytes(kHeadDim));
        values_.advance();
    }

    /// `offset`: of the block in the storage of a page's head.
    __device__ __forceinline__ void issue(uint32_t to, uint32_t full, const PrefillTile& tile,
                                          const Block& block, uint32_t offset) const {
        __syncwarp();
        if (lane_ == 0) {
            ptx::mbarrier_arrive_expect(full, (block.high - block.low) * kHeadDim * 2);
            const uint64_t policy = ptx::policy_evict_normal();
#pragma unroll
            for (int i = 0; i < kPages; ++i) {
                const int begin = larger(block.low - i * 64, 0);
                const int end = smaller(block.high - i * 64, 64);
                if (begin < end) {
                    load_rows(to, i * 64, head_of(block.pages[i], tile.kv_head) + offset, begin,
                              end, full, policy);
                }
            }
        }
        __syncwarp();
    }

    __device__ __forceinline__ const uint8_t* head_of(int page, int kv_head) const {
        constexpr int64_t kHeadBytes = 2 * kv_block_bytes(kHeadDim);
        if (page < 0) {
            return p_.copies.pages + (int64_t{-1 - page} * p_.kv_heads + kv_head) * kHeadBytes;
        }
        const bool remote = page >= p_.num_local_pages;
        const int64_t index = remote ? page - p_.num_local_pages : page;
        return (remote ? p_.remote : p_.local) + (index * p_.kv_heads + kv_head) * kHeadBytes;
    }

    static __device__ __forceinline__ uint32_t row_bytes(int panel) {
        return panel < Panels<kHeadDim>::kFull ? 128u : Panels<kHeadDim>::kRestRowBytes;
    }

    /// Rows [begin, end) of a page's block, as rows `offset` on of the stage.
    static __device__ __forceinline__ void load_rows(uint32_t to, int offset, const uint8_t* from,
                                                     int begin, int end, uint32_t barrier,
                                                     uint64_t policy) {
        if (kTokens == 64 && begin == 0 && end == 64) {
            ptx::bulk_load(to, from, kv_block_bytes(kHeadDim), barrier, policy);
            return;
        }
#pragma unroll
        for (int panel = 0; panel * 64 < kHeadDim; ++panel) {
            const uint32_t row = row_bytes(panel);
            ptx::bulk_load(to + panel * (kTokens * 128) + (offset + begin) * row,
                           from + panel * kPanelBytes + begin * row, (end - begin) * row, barrier,
                           policy);
        }
    }

    __device__ __forceinline__ void zero_rows(uint32_t stage, int begin, int end) const {
#pragma unroll
        for (int panel = 0; panel * 64 < kHeadDim; ++panel) {
            const uint32_t row = row_bytes(panel);
            const uint32_t start = stage + panel * (kTokens * 128);
            for (uint32_t at = begin * row + lane_ * 16; at < end * row; at += 512) {
                ptx::store_shared(start + at, make_float4(0, 0, 0, 0));
            }
        }
    }

    const PrefillAttentionParams& p_;
    const PrefillShared& shared_;
    const int lane_;
    int tiles_ = 0;
    uint32_t epoch_ = 0;  // of the copies of this launch
    PrefillTile next_;
    Entries next_entries_;
    uint32_t tile_parity_ = 1;
    StagePosition<kKvStages> keys_, values_;
};

/// Loads each tile's queries; rows past the sequence's last are zero. `thread` is 0..95.
template <int kHeadDim>
__device__ __forceinline__ void load_tile_queries(const PrefillAttentionParams& p,
                                                  const PrefillShared& shared, int thread) {
    constexpr int kChunks = kHeadDim / 8;
    constexpr uint32_t kBytes = kPrefillTileRows * kHeadDim * 2;
    uint32_t tile_parity = 0;
    StagePosition<prefill_query_stages(kHeadDim)> position;
    for (;;) {
        const PrefillTile tile = shared.next_tile(tile_parity, thread % 32);
        if (tile.sequence < 0) return;
        ptx::mbarrier_wait(shared.query_empty + 8 * position.stage, position.parity ^ 1);
        const uint32_t queries = shared.queries + position.stage * kBytes;
        const int head = tile.kv_head * p.head_group;
        for (int i = thread; i < kPrefillTileRows * kChunks; i += kQueryLoaders) {
            const int row = i / kChunks, chunk = i % kChunks;
            const int packed = tile.first_row + row;
            const int token = packed / p.head_group;
            const int64_t from = (tile.query_row + token) * p.ldq +
                                 (head + packed - token * p.head_group) * kHeadDim + chunk * 8;
            const int panel = chunk / 8;
            uint32_t to = queries + panel * (kPrefillTileRows * 128);
            if (panel < Panels<kHeadDim>::kFull) {
                to += row * 128 + (((chunk % 8) ^ (row & 7)) << 4);
            } else if (Panels<kHeadDim>::kRestColumns == 32) {
                to += row * 64 + (((chunk % 8) ^ ((row >> 1) & 3)) << 4);
            } else {
                to += row * 32 + (((chunk % 8) ^ ((row >> 2) & 1)) << 4);
            }
            const bool exists = packed < tile.rows;
            ptx::copy_async(to, static_cast<const uint8_t*>(p.q) + (exists ? from * 2 : 0), exists);
        }
        ptx::copy_async_wait_all();
        ptx::fence_async_shared();
        ptx::mbarrier_arrive(shared.query_full + 8 * position.stage);
        position.advance();
    }
}

}  // namespace dak::cuda
