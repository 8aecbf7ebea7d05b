#include "ops/cpu/matmul.h"

#include <omp.h>

#include <dnnl.hpp>

namespace dak::ops {

namespace {

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                      const dnnl::memory::desc& b, const dnnl::memory::desc& c) {
#if DNNL_VERSION_MAJOR >= 3
    return {engine, a, b, c};
#else
    return {dnnl::matmul::desc(a, b, c), engine};
#endif
}

/// Keeps oneDNN to the calling thread: the parallelism is parallel_for()'s.
class OneThread {
  public:
    OneThread() { omp_set_num_threads(1); }
    ~OneThread() { omp_set_num_threads(before_); }
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;

  private:
    int before_ = omp_get_max_threads();
};

}  // namespace

bool has_fast_bf16() {
    static const bool result = [] {
        switch (dnnl::get_effective_cpu_isa()) {
            case dnnl::cpu_isa::avx512_core_bf16:
            case dnnl::cpu_isa::avx512_core_amx:
                return true;
            default:
                return false;
        }
    }();
    return result;
}

void matmul(DType dtype, int64_t m, int64_t n, int64_t k, const void* a, const void* b, float* c) {
    using dnnl::memory;
    const OneThread one_thread;
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    thread_local dnnl::stream stream(engine);

    const auto type = dtype == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16;
    const memory::desc a_desc({m, k}, type, memory::dims{k, 1});
    const memory::desc b_desc({k, n}, type, memory::dims{1, k});
    const memory::desc c_desc({m, n}, memory::data_type::f32, memory::dims{n, 1});
    const dnnl::matmul primitive(describe(engine, a_desc, b_desc, c_desc));
    // The library takes pointers to non-const memory even for what it only reads.
    primitive.execute(stream, {{DNNL_ARG_SRC, memory(a_desc, engine, const_cast<void*>(a))},
                               {DNNL_ARG_WEIGHTS, memory(b_desc, engine, const_cast<void*>(b))},
                               {DNNL_ARG_DST, memory(c_desc, engine, c)}});
    stream.wait();
}

}  // namespace dak::ops
