#include "engine/cuda/weight_stager.h"

#include <algorithm>

namespace dak::cuda {
namespace {

std::vector<int64_t> remote_bytes(std::span<const SplitTensor> weights) {
    std::vector<int64_t> bytes;
    for (const SplitTensor& weight : weights) bytes.push_back(weight.remote_bytes());
    return bytes;
}

}  // namespace

WeightStager::WeightStager(std::span<const SplitTensor> weights, const StagingSizes& sizes)
    : weights_(weights.begin(), weights.end()),
      schedule_(schedule_staging(remote_bytes(weights), sizes)),
      ring_(Arena::device("staging ring", schedule_.ring_bytes)),
      ring_base_(ring_.allocate(schedule_.ring_bytes)),
      runs_(find_runs()),
      frees_(weights.size()),
      copied_(schedule_.pieces.size()),
      read_(weights.size()) {
    for (const StagingSchedule::Piece& piece : schedule_.pieces) {
        if (piece.overwrites_read >= 0) frees_[static_cast<size_t>(piece.overwrites_read)] = true;
    }
    for (size_t piece = 0; piece < static_cast<size_t>(schedule_.ahead); ++piece) copy(piece);
    check(cudaStreamSynchronize(copies_), "filling the staging ring");
}

WeightStager::~WeightStager() { cudaStreamSynchronize(copies_); }

std::vector<std::vector<WeightStager::Run>> WeightStager::find_runs() const {
    std::vector<std::vector<Run>> runs(schedule_.pieces.size());
    size_t weight = 0;
    int64_t part_begin = 0;  // of the weight's remote part, in the stream
    for (size_t i = 0; i < runs.size(); ++i) {
        const StagingSchedule::Piece& piece = schedule_.pieces[i];
        int64_t done = 0;
        while (done < piece.bytes) {
            const int64_t at = piece.stream_offset + done;
            while (at >= part_begin + weights_[weight].remote_bytes()) {
                part_begin += weights_[weight++].remote_bytes();
            }
            const SplitTensor& tensor = weights_[weight];
            const int64_t bytes =
                std::min(piece.bytes - done, part_begin + tensor.remote_bytes() - at);
            const std::byte* from = tensor.remote + (at - part_begin);
            std::byte* to = ring_base_ + piece.ring_offset + done;
            if (!runs[i].empty() && runs[i].back().from + runs[i].back().bytes == from) {
                runs[i].back().bytes += bytes;
            } else {
                runs[i].push_back({from, to, bytes});
            }
            done += bytes;
        }
    }
    return runs;
}

void WeightStager::copy(size_t piece) {
    for (const Run& run : runs_[piece]) {
        check(cudaMemcpyAsync(run.to, run.from, static_cast<size_t>(run.bytes), cudaMemcpyDefault,
                              copies_),
              "staging weights");
    }
    check(cudaEventRecord(copied_[piece], copies_), "staging weights");
}

void WeightStager::copy_behind_readers(size_t piece) {
    const int reader = schedule_.pieces[piece].overwrites_read;
    if (reader >= 0) {
        check(cudaStreamWaitEvent(copies_, read_[static_cast<size_t>(reader)]), "staging weights");
    }
    copy(piece);
}

void WeightStager::begin_step(cudaStream_t stream) {
    check(cudaEventRecord(fork_, stream), "staging weights");
    check(cudaStreamWaitEvent(copies_, fork_), "staging weights");
    next_piece_ = static_cast<size_t>(schedule_.ahead);
    waited_piece_ = schedule_.ahead - 1;  // the step before has waited for these
}

SplitTensor WeightStager::before(size_t i, cudaStream_t stream) {
    SplitTensor weight = weights_[i];
    const int needed = schedule_.last_piece[i];
    if (needed < 0) return weight;
    for (; static_cast<int>(next_piece_) <= needed; ++next_piece_) {
        copy_behind_readers(next_piece_);
    }
    if (needed > waited_piece_) {
        check(cudaStreamWaitEvent(stream, copied_[static_cast<size_t>(needed)]), "staging weights");
        waited_piece_ = needed;
    }
    weight.remote = ring_base_ + schedule_.ring_offset[i];
    return weight;
}

void WeightStager::after(size_t i, cudaStream_t stream) {
    if (frees_[i]) check(cudaEventRecord(read_[i], stream), "staging weights");
}

void WeightStager::copy_ahead() {
    for (size_t piece = 0; piece < static_cast<size_t>(schedule_.ahead); ++piece) {
        copy_behind_readers(piece);
    }
    check(cudaEventRecord(join_, copies_), "staging weights");
}

void WeightStager::join(cudaStream_t stream) {
    check(cudaStreamWaitEvent(stream, join_), "staging weights");
}

}  // namespace dak::cuda
