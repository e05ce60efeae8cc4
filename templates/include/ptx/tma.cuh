// Tensor memory accelerator: whole boxes of a tensor map between global and shared memory. One thread issues.
namespace tma {

DEVICE void prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Box at element (c0, c1, c2, c3), innermost first, into `destination`; its bytes complete on `barrier`. What lies
// outside the tensor arrives as zeros and counts as delivered.
DEVICE void load(u32 destination, const TensorMap* map, u32 barrier, int c0, int c1, int c2, int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

// The reverse; what lies outside the tensor is dropped. Completion is tracked by the bulk group.
DEVICE void store(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
        "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

DEVICE void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the committed stores have read their shared memory, which then may be reused or given up.
DEVICE void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

}  // namespace tma
