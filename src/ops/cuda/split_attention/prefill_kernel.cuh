#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/mma.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/split_attention/kv_block.cuh"
#include "ops/cuda/split_attention/params.h"
#include "ops/cuda/split_attention/wgmma.cuh"

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

// ---- loading ----------------------------------------------------------------------------------

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

// ---- computing --------------------------------------------------------------------------------

template <typename Element, int kHeadDim>
class PrefillConsumer {
  public:
    /// `group` is 0 or 1, `thread` 0..127.
    __device__ __forceinline__ PrefillConsumer(const PrefillAttentionParams& p,
                                               const PrefillShared& shared, int group, int thread)
        : p_(p), shared_(shared), group_(group), warp_(thread / 32), lane_(thread % 32) {}

    __device__ __forceinline__ void run() {
        if (group_ == 1) ptx::barrier_arrive(1, 256);  // the first turn is warpgroup 0's
        PrefillTile tile = next_tile();
        if (tile.sequence >= 0) {
            take_turn();
            start_tile();
            pass_turn();
            for (;;) {
                compute(tile);
                const PrefillTile next = next_tile();
                if (next.sequence < 0) break;
                start_tile();  // computed along with this tile's last values
                pass_turn();
                finish_values();
                store(tile);
                tile = next;
            }
            pass_turn();
            finish_values();
            store(tile);
        }
        if (group_ == 0) ptx::barrier_sync(1, 256);  // the turn that nobody takes
    }

  private:
    static constexpr int kTokens = prefill_block_tokens(kHeadDim);
    static constexpr uint32_t kBlock = kTokens * kHeadDim * 2;
    static constexpr uint32_t kQueryBytes = kPrefillTileRows * kHeadDim * 2;
    static constexpr int kFullPanels = Panels<kHeadDim>::kFull;
    static constexpr int kFullColumns = kFullPanels * 64;
    static constexpr int kRestColumns = Panels<kHeadDim>::kRestColumns;
    static constexpr int kScores = kTokens / 2;
    // The largest score of a row may lag by this power of two before its sums are rescaled, which
    // is then seldom.
    static constexpr float kLag = 8;
    static constexpr int kSteps = kTokens / 16;

    /// Descriptor of an operand of rows of kRowBytes bytes, swizzled by that width. `panel_stride`
    /// is from 64 columns to the next where an operand's columns are not its K.
    template <uint32_t kRowBytes>
    static __device__ __forceinline__ uint64_t operand(uint32_t address,
                                                       uint32_t panel_stride = 16) {
        constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
        constexpr uint64_t kGroupStride = 8 * kRowBytes >> 4;
        return kSwizzle << 62 | kGroupStride << 32 | uint64_t{panel_stride >> 4} << 16 |
               (address >> 4);
    }

    __device__ __forceinline__ void place(const PrefillTile& tile) {
        const int row = group_ * 64 + warp_ * 16;
        first_position_ = tile.position(p_, row);
        last_position_ = tile.position(p_, row + 15);
        positions_[0] = tile.position(p_, row + lane_ / 4);
        positions_[1] = tile.position(p_, row + lane_ / 4 + 8);
    }

    __device__ __forceinline__ PrefillTile next_tile() {
        return shared_.next_tile(tile_parity_, lane_);
    }

    /// Issues the first scores of a tile.
    __device__ __forceinline__ void start_tile() {
        ptx::mbarrier_wait(shared_.query_full + 8 * queries_.stage, queries_.parity);
        issue_scores();
    }

    /// From the first scores, which have been issued, to the last values, which it issues, and
    /// keeps the turn.
    __device__ __forceinline__ void compute(const PrefillTile& tile) {
        place(tile);
        max_[0] = max_[1] = -INFINITY;
        total_[0] = total_[1] = 0;
        const int first_block = tile.begin(p_) / kTokens;
        int block = (tile.end(p_) - 1) / kTokens;
        uint32_t weights[kSteps][4];
        float factors[2];

        ptx::wgmma_wait<0>();
        ptx::pin(scores_);
        release_keys();
        softmax(block, factors);
        pack_weights(weights);

        bool accumulate = false;
        for (--block; block >= first_block; --block) {
            take_turn();
            issue_scores();
            issue_values(weights, accumulate);
            pass_turn();
            accumulate = true;
            ptx::wgmma_wait<1>();
            ptx::pin(scores_);
            release_keys();
            const bool grown = softmax(block, factors);
            finish_values();
            if (grown) rescale(factors);
            pack_weights(weights);
        }
        release(shared_.query_empty + 8 * queries_.stage);
        queries_.advance();
        take_turn();
        issue_values(weights, accumulate);
    }

    // A warpgroup's turn to issue products.
    __device__ __forceinline__ void take_turn() const { ptx::barrier_sync(1 + group_, 256); }
    __device__ __forceinline__ void pass_turn() const { ptx::barrier_arrive(2 - group_, 256); }

    __device__ __forceinline__ void release(uint32_t barrier) const {
        __syncwarp();
        if (lane_ == 0) ptx::mbarrier_arrive(barrier);
    }
    __device__ __forceinline__ void release_keys() {
        release(shared_.k_empty + 8 * keys_.stage);
        keys_.advance();
    }

    __device__ __forceinline__ void issue_scores() {
        ptx::mbarrier_wait(shared_.k_full + 8 * keys_.stage, keys_.parity);
        const uint32_t keys = shared_.keys + keys_.stage * kBlock;
        const uint32_t queries = shared_.queries + queries_.stage * kQueryBytes;
        ptx::pin(scores_);
        ptx::wgmma_fence();
#pragma unroll
        for (int panel = 0; panel < kFullPanels; ++panel) {
            const uint64_t a =
                operand<128>(queries + panel * (kPrefillTileRows * 128) + group_ * (64 * 128));
            const uint64_t b = operand<128>(keys + panel * (kTokens * 128));
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                ptx::ScoreWgmma<Element, kTokens>::multiply(scores_, a + k * 2, b + k * 2,
                                                            panel + k > 0);
            }
        }
        if constexpr (kRestColumns > 0) {
            constexpr uint32_t kRow = Panels<kHeadDim>::kRestRowBytes;
            const uint64_t a = operand<kRow>(queries + kFullPanels * (kPrefillTileRows * 128) +
                                             group_ * (64 * kRow));
            const uint64_t b = operand<kRow>(keys + kFullPanels * (kTokens * 128));
#pragma unroll
            for (int k = 0; k < kRestColumns / 16; ++k) {
                ptx::ScoreWgmma<Element, kTokens>::multiply(scores_, a + k * 2, b + k * 2, true);
            }
        }
        ptx::wgmma_commit();
    }

    __device__ __forceinline__ void issue_values(const uint32_t (&weights)[kSteps][4],
                                                 bool accumulate) {
        ptx::mbarrier_wait(shared_.v_full + 8 * values_.stage, values_.parity);
        const uint32_t values = shared_.values + values_.stage * kBlock;
        ptx::pin(sums_);
        ptx::pin(rest_sums_);
        ptx::wgmma_fence();
        const uint64_t b = operand<128>(values, kTokens * 128);
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
            ptx::ValueWgmma<Element, kFullColumns>::multiply(
                sums_, weights[k], b + (k * 16 * 128 >> 4), accumulate || k > 0);
        }
        if constexpr (kRestColumns > 0) {
            constexpr uint32_t kRow = Panels<kHeadDim>::kRestRowBytes;
            const uint64_t rest = operand<kRow>(values + kFullPanels * (kTokens * 128));
#pragma unroll
            for (int k = 0; k < kSteps; ++k) {
                ptx::ValueWgmma<Element, kRestColumns>::multiply(
                    rest_sums_, weights[k], rest + (k * 16 * kRow >> 4), accumulate || k > 0);
            }
        }
        ptx::wgmma_commit();
    }

    __device__ __forceinline__ void finish_values() {
        ptx::wgmma_wait<0>();
        ptx::pin(sums_);
        ptx::pin(rest_sums_);
        release(shared_.v_empty + 8 * values_.stage);
        values_.advance();
    }

    /// Turns scores into weights and adds to each row's total. True when the row's largest score
    /// has grown, so that sums so far are to be multiplied by `factors`; the same for all lanes.
    __device__ __forceinline__ bool softmax(int block, float (&factors)[2]) {
        float scale = p_.score_scale;
        if (p_.cap_scale != 0) {
#pragma unroll
            for (float& s : scores_) s = ptx::tanh(s * p_.score_scale);
            scale = p_.cap_scale;
        }
        const int first = block * kTokens, last = first + kTokens - 1;
        const bool too_late = last > first_position_;
        const bool too_early = p_.sliding_window > 0 && first <= last_position_ - p_.sliding_window;
        if (too_late || too_early) mask(first);
        float largest[2];
        bool grown = false;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float m = -INFINITY;
#pragma unroll
            for (int g = 0; g < kTokens / 8; ++g) {
                m = fmaxf(m, fmaxf(scores_[4 * g + 2 * half], scores_[4 * g + 2 * half + 1]));
            }
            largest[half] = m;
            grown |= m * scale > max_[half] * scale + kLag;
        }
        grown = __any_sync(~0u, grown);
        if (grown) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float m = fmaxf(max_[half], largest[half]);
                m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
                m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
                factors[half] = ptx::exp2(max_[half] * scale - offset_of(m, scale));
                max_[half] = m;
                total_[half] *= factors[half];
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float offset = offset_of(max_[half], scale);
#pragma unroll
            for (int g = 0; g < kTokens / 8; ++g) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& s = scores_[4 * g + 2 * half + i];
                    s = ptx::exp2(fmaf(s, scale, -offset));
                    total_[half] += s;
                }
            }
        }
        return grown;
    }

    /// A row that has seen nothing yet has weights of zero.
    static __device__ __forceinline__ float offset_of(float largest, float scale) {
        return largest == -INFINITY ? 0.0f : largest * scale;
    }

    /// Tokens of the block that starts at `first`, for each of this thread's rows.
    __device__ __forceinline__ void mask(int first) {
        const int own = first + lane_ % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int last = positions_[half] - own;
            const int before = p_.sliding_window > 0 ? last - p_.sliding_window : -1;
#pragma unroll
            for (int g = 0; g < kTokens / 8; ++g) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int column = g * 8 + i;
                    if (column > last || column <= before) {
                        scores_[4 * g + 2 * half + i] = -INFINITY;
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void rescale(const float (&factors)[2]) {
#pragma unroll
        for (int i = 0; i < kFullColumns / 2; ++i) sums_[i] *= factors[i / 2 % 2];
        if constexpr (kRestColumns > 0) {
#pragma unroll
            for (int i = 0; i < kRestColumns / 2; ++i) rest_sums_[i] *= factors[i / 2 % 2];
        }
    }

    __device__ __forceinline__ void pack_weights(uint32_t (&weights)[kSteps][4]) const {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                weights[k][i] =
                    ptx::pack<Element>(scores_[8 * k + 2 * i], scores_[8 * k + 2 * i + 1]);
            }
        }
    }

    // ---- results ----

    __device__ __forceinline__ void store(const PrefillTile& tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float total = total_[half];
            total += __shfl_xor_sync(~0u, total, 1);
            total += __shfl_xor_sync(~0u, total, 2);
            const float factor = 1.0f / total;
            const int row = group_ * 64 + warp_ * 16 + lane_ / 4 + half * 8;
            const int packed = tile.first_row + row;
            const int token = packed / p_.head_group;
            Element* to =
                static_cast<Element*>(p_.out) + (tile.query_row + token) * p_.ldo +
                (tile.kv_head * p_.head_group + packed - token * p_.head_group) * int64_t{kHeadDim};
            const bool exists = packed < tile.rows;
#pragma unroll
            for (int g = 0; g < kFullColumns / 8; g += 4) {
                store_groups(sums_, g, half, factor, to + g * 8, exists);
            }
            if constexpr (kRestColumns == 32) {
                store_groups(rest_sums_, 0, half, factor, to + kFullColumns, exists);
            } else if constexpr (kRestColumns == 16) {
                if (exists) {
#pragma unroll
                    for (int g = 0; g < 2; ++g) {
                        const float* s = &rest_sums_[4 * g + 2 * half];
                        *reinterpret_cast<uint32_t*>(to + kFullColumns + g * 8 + lane_ % 4 * 2) =
                            ptx::pack<Element>(s[0] * factor, s[1] * factor);
                    }
                }
            }
        }
    }

    /// Four groups of 8 columns: transposed among the four lanes of a row, so that each stores one
    /// group, 16 bytes.
    template <int kCount>
    __device__ __forceinline__ void store_groups(const float (&sums)[kCount], int g, int half,
                                                 float factor, Element* to, bool exists) const {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float* s = &sums[4 * (g + i) + 2 * half];
            words[i] = ptx::pack<Element>(s[0] * factor, s[1] * factor);
        }
#pragma unroll
        for (int bit = 1; bit <= 2; bit *= 2) {
            const bool upper = (lane_ & bit) != 0;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (i & bit) continue;
                const uint32_t sent = upper ? words[i] : words[i | bit];
                const uint32_t received = __shfl_xor_sync(~0u, sent, bit);
                if (upper) {
                    words[i] = received;
                } else {
                    words[i | bit] = received;
                }
            }
        }
        if (exists) {
            *reinterpret_cast<uint4*>(to + lane_ % 4 * 8) =
                make_uint4(words[0], words[1], words[2], words[3]);
        }
    }

    const PrefillAttentionParams& p_;
    const PrefillShared& shared_;
    const int group_, warp_, lane_;
    uint32_t tile_parity_ = 0;
    StagePosition<prefill_query_stages(kHeadDim)> queries_;
    StagePosition<kKvStages> keys_, values_;
    int first_position_ = 0, last_position_ = 0;  // of the warp's rows
    int positions_[2] = {0, 0};                   // of this thread's two rows
    float max_[2], total_[2];
    float scores_[kScores];
    float sums_[kFullColumns / 2];
    float rest_sums_[kRestColumns > 0 ? kRestColumns / 2 : 1];
};

// ---- the kernel -------------------------------------------------------------------------------

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
