#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/staging_schedule.h"
#include "memory/arena.h"
#include "memory/split_tensor.h"
#include "ops/cuda/handles.h"

namespace dak::cuda {

/// The staged transport: carries out a StagingSchedule with the copy engine, beside the products of
/// a step. Works the same under stream capture, and steps that are captured and steps that are not
/// may follow each other.
///
///     begin_step(stream)
///     for each product i, in order:  before(i, stream), the product, after(i, stream)
///     copy_ahead()
///     join(stream)
class WeightStager {
  public:
    /// `weights` are those that a step reads, in order. Takes the ring's memory and fills what
    /// every step expects there.
    WeightStager(std::span<const SplitTensor> weights, const StagingSizes& sizes);
    WeightStager(const WeightStager&) = delete;
    WeightStager& operator=(const WeightStager&) = delete;
    ~WeightStager();

    void begin_step(cudaStream_t stream);

    /// Lets `stream` wait for the remote part of weight i; returns the weight with its remote part
    /// in the ring.
    SplitTensor before(size_t i, cudaStream_t stream);

    /// The readers of weight i are the work that `stream` holds now.
    void after(size_t i, cudaStream_t stream);

    /// Enqueues the copies ahead of the next step, behind this step's readers.
    void copy_ahead();

    /// Joins the copies into `stream`; last in a step.
    void join(cudaStream_t stream);

    const StagingSchedule& schedule() const { return schedule_; }

  private:
    /// Bytes of a piece that are neighbours in the remote tier, too.
    struct Run {
        const std::byte* from;
        std::byte* to;
        int64_t bytes;
    };

    std::vector<std::vector<Run>> find_runs() const;
    void copy(size_t piece);
    void copy_behind_readers(size_t piece);

    std::vector<SplitTensor> weights_;
    StagingSchedule schedule_;
    Arena ring_;
    std::byte* ring_base_;
    std::vector<std::vector<Run>> runs_;  ///< of each piece
    std::vector<bool> frees_;             ///< whether a copy waits for the readers of weight i
    Stream copies_;
    std::vector<Event> copied_;  ///< of each piece
    std::vector<Event> read_;    ///< of each weight
    Event fork_;
    Event join_;
    size_t next_piece_ = 0;  ///< to be copied in this step
    int waited_piece_ = -1;  ///< the step's stream has waited for the pieces up to here
};

}  // namespace dak::cuda
