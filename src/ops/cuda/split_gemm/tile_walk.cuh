#pragma once

#include "ops/cuda/split_gemm/params.h"

// The tiles of the kernels for many tokens, in the order in which a worker computes them.

namespace dak::cuda {

/// A worker's tiles in the order it computes them: its range of the line, then its whole tiles.
class TileWalk {
  public:
    __device__ __forceinline__ TileWalk(const PrefillParams& p, int worker)
        : p_(p),
          worker_(worker),
          unit_(p.line.begin(worker)),
          end_(p.line.begin(worker + 1)),
          whole_(p.line.is_remote(worker) ? p.whole_tiles : worker - p.line.remote_workers()) {}

    __device__ __forceinline__ bool next(Segment& segment) {
        if (unit_ < end_) {
            segment = p_.line.segment(unit_, end_, worker_);
            unit_ += segment.length();
            return true;
        }
        if (whole_ >= p_.whole_tiles) return false;
        segment = {p_.line.blocks() + whole_, 0, p_.line.k_atoms(), worker_, worker_};
        whole_ += p_.line.local_workers();
        return true;
    }

  private:
    const PrefillParams& p_;
    int worker_;
    int unit_, end_;
    int whole_;
};

struct TilePlace {
    int row_block;
    int token_tile;  ///< of the cluster
};

__device__ __forceinline__ TilePlace place_of(const PrefillParams& p, int tile) {
    const int remote = p.remote_tiles.tiles();
    if (tile < remote) return {p.remote_tiles.row_block(tile), p.remote_tiles.token_tile(tile)};
    return {p.remote_tiles.row_blocks + p.local_tiles.row_block(tile - remote),
            p.local_tiles.token_tile(tile - remote)};
}

}  // namespace dak::cuda
