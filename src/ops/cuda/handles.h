#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "ops/cuda/check.h"

// The CUDA runtime's handles, owned. Their destructors ignore errors.

namespace dak::cuda {

/// A stream that does not wait for the default one.
class Stream {
  public:
    Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() { cudaStreamDestroy(stream_); }
    operator cudaStream_t() const { return stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

class Event {
  public:
    enum class Timing : bool { kOff, kOn };

    explicit Event(Timing timing = Timing::kOff) {
        const unsigned flags = timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming;
        check(cudaEventCreateWithFlags(&event_, flags), "event");
    }
    Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    Event& operator=(Event&&) = delete;
    ~Event() {
        if (event_ != nullptr) cudaEventDestroy(event_);
    }
    operator cudaEvent_t() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

/// Work of a stream that has been captured and can be launched any number of times.
class Graph {
  public:
    /// Captures what `enqueue()` puts into `stream`, and what joins it from other streams.
    template <typename Enqueue>
    Graph(cudaStream_t stream, const Enqueue& enqueue) {
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "graph capture");
        cudaGraph_t graph = nullptr;
        try {
            enqueue();
        } catch (...) {
            cudaStreamEndCapture(stream, &graph);
            if (graph != nullptr) cudaGraphDestroy(graph);
            throw;
        }
        check(cudaStreamEndCapture(stream, &graph), "graph capture");
        cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
        cudaGraphDestroy(graph);
        check(status, "graph instantiation");
        status = cudaGraphUpload(executable_, stream);
        if (status != cudaSuccess) cudaGraphExecDestroy(executable_);
        check(status, "graph upload");
    }
    Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
    Graph& operator=(Graph&&) = delete;
    ~Graph() {
        if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    }

    void launch(cudaStream_t stream) const {
        check(cudaGraphLaunch(executable_, stream), "graph launch");
    }

  private:
    cudaGraphExec_t executable_ = nullptr;
};

/// Milliseconds between two events with timing that have passed.
inline double milliseconds_between(const Event& begin, const Event& end) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "elapsed time");
    return milliseconds;
}

}  // namespace dak::cuda
