#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/cuda/check.h"

namespace dak::cuda {

inline constexpr uint8_t kPoison = 0xff;  // NaN in every type

/// Device memory with a host copy.
template <typename T>
class DeviceArray {
  public:
    explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
        allocate();
        upload(values);
    }
    explicit DeviceArray(size_t size) : size_(size) { allocate(); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    ~DeviceArray() { cudaFree(data_); }

    T* data() const { return data_; }
    void upload(const std::vector<T>& values) {
        check(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyDefault), "upload");
    }
    std::vector<T> download() const {
        std::vector<T> values(size_);
        check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDefault), "download");
        return values;
    }
    void poison() { check(cudaMemset(data_, kPoison, size_ * sizeof(T)), "poison"); }

  private:
    void allocate() {
        void* memory = nullptr;
        check(cudaMalloc(&memory, std::max<size_t>(16, size_ * sizeof(T))), "test memory");
        data_ = static_cast<T*>(memory);
    }
    size_t size_;
    T* data_ = nullptr;
};

}  // namespace dak::cuda
