#include "model/weight_builder.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/progress.h"

namespace dak {

namespace {

/// Calls `work(i)` for i < count, each on a thread, this one among them, and rethrows the first
/// exception.
void run_on_threads(int count, const std::function<void(size_t)>& work) {
    std::exception_ptr first;
    std::mutex mutex;
    const auto guarded = [&](size_t thread) {
        try {
            work(thread);
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!first) first = std::current_exception();
        }
    };
    {
        std::vector<std::jthread> threads;
        for (size_t i = 1; i < static_cast<size_t>(count); ++i) threads.emplace_back(guarded, i);
        guarded(0);
    }
    if (first) std::rethrow_exception(first);
}

/// Packs the row tiles of one thread into their places.
class TilePacker {
  public:
    TilePacker(ArenaWriter& local, ArenaWriter& remote) : local_(local), remote_(remote) {}

    /// `source` holds `rows` rows, row-major.
    void operator()(const SplitTensor& tensor, int64_t tile, int64_t rows,
                    const std::byte* source) {
        const int64_t atoms = tensor.shape.k_atoms();
        const int64_t first = tile * atoms;
        const int64_t remote = std::clamp(tensor.remote_atoms - first, int64_t{0}, atoms);
        pack(remote_, tensor, first, 0, remote, rows, source);
        pack(local_, tensor, first, remote, atoms, rows, source);
    }

    void finish() {
        remote_.finish();
        local_.finish();
    }

  private:
    /// Packs atoms [begin, end) of the tile whose first atom is `first`; they are neighbours in one
    /// tier.
    static void pack(ArenaWriter& writer, const SplitTensor& tensor, int64_t first, int64_t begin,
                     int64_t end, int64_t rows, const std::byte* source) {
        constexpr int64_t kMaxAtoms = ArenaWriter::kMaxPiece / kAtomBytes;
        const int64_t row_bytes = tensor.shape.cols * size_of(tensor.shape.dtype);
        for (; begin < end; begin += kMaxAtoms) {
            const int64_t atoms = std::min(kMaxAtoms, end - begin);
            const int64_t column = begin * kAtomRowBytes;
            writer.write(tensor.atom(first + begin), atoms * kAtomBytes, [&](std::byte* target) {
                pack_atoms(source + column, row_bytes, rows,
                           std::min(atoms * kAtomRowBytes, row_bytes - column), target);
            });
        }
    }

    ArenaWriter& local_;
    ArenaWriter& remote_;
};

/// Hands out row tiles in storage order, so that files are read front to back.
class TileQueue {
  public:
    explicit TileQueue(const std::vector<WeightSpec>& specs) {
        for (const WeightSpec& spec : specs) ends_.push_back(total() + spec.shape.row_tiles());
    }

    int64_t total() const { return ends_.empty() ? 0 : ends_.back(); }

    struct Item {
        size_t weight;
        int64_t tile;
    };
    std::optional<Item> next() {
        const int64_t item = next_++;
        if (item >= total()) return {};
        const auto end = std::ranges::upper_bound(ends_, item);
        const auto weight = static_cast<size_t>(end - ends_.begin());
        return Item{weight, item - (weight == 0 ? 0 : ends_[weight - 1])};
    }

    void stop() { next_ = total(); }

  private:
    std::vector<int64_t> ends_;
    std::atomic<int64_t> next_ = 0;
};

void pack_all(const ModelConfig& config, const std::vector<WeightSpec>& specs,
              const std::vector<SplitTensor>& tensors, const ModelWeights& weights,
              const LoadOptions& options, std::string title, const TileFiller& fill) {
    int64_t total_bytes = 0;
    int64_t max_tile_bytes = 0;
    for (const WeightSpec& spec : specs) {
        total_bytes += spec.shape.bytes();
        max_tile_bytes =
            std::max(max_tile_bytes, kAtomRows * spec.shape.cols * size_of(spec.shape.dtype));
    }
    ProgressBar progress(std::move(title), total_bytes, options.progress);
    std::mutex progress_mutex;
    TileQueue queue(specs);
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    const int wanted = options.num_threads > 0 ? options.num_threads : std::max(cores, 1);
    const auto threads = static_cast<int>(std::min<int64_t>(wanted, queue.total()));
    const auto local = weights.local.writers(threads);
    const auto remote = weights.remote.writers(threads);
    const auto work = [&](size_t thread) {
        std::vector<std::byte> rows(static_cast<size_t>(max_tile_bytes));
        std::vector<std::byte> scratch;
        TilePacker pack(*local[thread], *remote[thread]);
        try {
            while (const auto item = queue.next()) {
                const WeightSpec& spec = specs[item->weight];
                fill(item->weight, item->tile, rows.data(), scratch);
                pack(tensors[item->weight], item->tile, tile_rows(config, spec, item->tile).count,
                     rows.data());
                const std::lock_guard lock(progress_mutex);
                progress.advance(spec.shape.k_atoms() * kAtomBytes);
            }
            pack.finish();
        } catch (...) {
            queue.stop();
            throw;
        }
    };
    run_on_threads(threads, work);
    progress.finish();
}

/// Gives each tensor its place in `weights`.
void assign(ModelWeights& weights, const WeightSpec& spec, const SplitTensor& tensor) {
    LayerWeights* layer =
        spec.layer < 0 ? nullptr : &weights.layers[static_cast<size_t>(spec.layer)];
    switch (spec.role) {
        case WeightRole::kEmbedding:
            weights.embedding = weights.lm_head = tensor;
            break;
        case WeightRole::kPositions:
            weights.positions = tensor;
            break;
        case WeightRole::kProjectIn:
            weights.project_in = LinearWeights{tensor, {}};
            break;
        case WeightRole::kQkv:
            layer->qkv.weight = tensor;
            break;
        case WeightRole::kOutput:
            layer->output.weight = tensor;
            break;
        case WeightRole::kUp:
            layer->up.weight = tensor;
            break;
        case WeightRole::kDown:
            layer->down.weight = tensor;
            break;
        case WeightRole::kProjectOut:
            weights.project_out = LinearWeights{tensor, {}};
            break;
        case WeightRole::kLmHead:
            weights.lm_head = tensor;
            break;
    }
}

}  // namespace

bool is_interleaved(const ModelConfig& config, const WeightSpec& spec) {
    return spec.role == WeightRole::kUp && config.gated_mlp;
}

TileRows tile_rows(const ModelConfig& config, const WeightSpec& spec, int64_t tile) {
    const bool interleaved = is_interleaved(config, spec);
    const int64_t rows = interleaved ? config.intermediate_size : spec.shape.rows;
    const int64_t begin = (interleaved ? tile / 2 : tile) * kAtomRows;
    return {begin, std::min(kAtomRows, rows - begin)};
}

ReservedWeights reserve_weights(const ModelConfig& config, const Placement& placement,
                                const TierMemory& memory, ModelVectors vectors) {
    const std::vector<WeightSpec> specs = weight_specs(config);
    require(placement.size() == specs.size(), "placement of {} weights for a model of {}",
            placement.size(), specs.size());
    int64_t total_atoms = 0;
    int64_t remote_atoms = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
        total_atoms += specs[i].shape.atoms();
        remote_atoms += placement[i];
    }
    ReservedWeights reserved{
        .weights = {
            .local = memory.local("local weights", (total_atoms - remote_atoms) * kAtomBytes),
            .remote = memory.remote("remote weights", remote_atoms * kAtomBytes),
            .layers = std::move(vectors.layers),
            .final_norm = std::move(vectors.final_norm)}};
    ModelWeights& weights = reserved.weights;
    for (size_t i = 0; i < specs.size(); ++i) {
        reserved.tensors.push_back(
            allocate_split(specs[i].shape, placement[i], weights.local, weights.remote));
        assign(weights, specs[i], reserved.tensors.back());
    }
    return reserved;
}

ModelWeights build_weights(const ModelConfig& config, const Placement& placement,
                           const LoadOptions& options, std::string title, ModelVectors vectors,
                           const TileFiller& fill) {
    ReservedWeights reserved =
        reserve_weights(config, placement, options.memory, std::move(vectors));
    pack_all(config, weight_specs(config), reserved.tensors, reserved.weights, options,
             std::move(title), fill);
    return std::move(reserved.weights);
}

std::vector<float> interleave_bias(const std::vector<float>& gate, const std::vector<float>& up) {
    const auto size = static_cast<int64_t>(gate.size());
    std::vector<float> bias(static_cast<size_t>(2 * round_up(size, kAtomRows)));
    for (int64_t row = 0; row < size; ++row) {
        const int64_t target = row / kAtomRows * 2 * kAtomRows + row % kAtomRows;
        bias[static_cast<size_t>(target)] = gate[static_cast<size_t>(row)];
        bias[static_cast<size_t>(target + kAtomRows)] = up[static_cast<size_t>(row)];
    }
    return bias;
}

}  // namespace dak
