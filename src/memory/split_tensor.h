#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/arena.h"
#include "memory/packing.h"
#include "memory/tier.h"

namespace dak {

/// A packed weight whose atoms live in two tiers: atoms [0, remote_atoms) of the packed order are
/// remote, the rest local. The boundary may fall inside a row tile. Owns nothing; the arenas do.
struct SplitTensor {
    PackedShape shape;
    int64_t remote_atoms = 0;
    std::byte* remote = nullptr;  ///< atom 0 of the packed order
    std::byte* local = nullptr;   ///< atom `remote_atoms`

    int64_t remote_bytes() const { return remote_atoms * kAtomBytes; }
    int64_t local_bytes() const { return shape.bytes() - remote_bytes(); }

    Tier tier_of(int64_t atom) const { return atom < remote_atoms ? Tier::kRemote : Tier::kLocal; }

    /// `atom` counts in packed order: row_tile * k_atoms + k_atom.
    std::byte* atom(int64_t atom) const {
        return atom < remote_atoms ? remote + atom * kAtomBytes
                                   : local + (atom - remote_atoms) * kAtomBytes;
    }
};

/// Reserves the memory of a split tensor; its contents are undefined until packed into.
inline SplitTensor allocate_split(const PackedShape& shape, int64_t remote_atoms, Arena& local,
                                  Arena& remote) {
    require(remote_atoms >= 0 && remote_atoms <= shape.atoms(),
            "split of {} remote atoms in a tensor of {}", remote_atoms, shape.atoms());
    SplitTensor tensor{shape, remote_atoms, nullptr, nullptr};
    tensor.remote = remote.allocate(tensor.remote_bytes());
    tensor.local = local.allocate(tensor.local_bytes());
    return tensor;
}

}  // namespace dak
