#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace dak {

/// The middle of `values`, of which there is at least one; of an even number the upper one.
inline double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

}  // namespace dak
