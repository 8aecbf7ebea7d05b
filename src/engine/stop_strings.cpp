#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace dak {

std::string StopStrings::push(std::string_view text) {
    if (found_) return {};
    pending_ += text;
    size_t stop_at = std::string::npos;
    for (const std::string& stop : strings_) stop_at = std::min(stop_at, pending_.find(stop));
    if (stop_at != std::string::npos) {
        found_ = true;
        pending_.resize(stop_at);
        return std::exchange(pending_, {});
    }
    // The longest tail that a stop string begins with may yet become that string.
    size_t held = 0;
    for (const std::string& stop : strings_) {
        for (size_t length = std::min(stop.size() - 1, pending_.size()); length > held; --length) {
            if (pending_.ends_with(std::string_view(stop).substr(0, length))) held = length;
        }
    }
    std::string ready = pending_.substr(0, pending_.size() - held);
    pending_.erase(0, ready.size());
    return ready;
}

std::string StopStrings::finish() { return std::exchange(pending_, {}); }

}  // namespace dak
