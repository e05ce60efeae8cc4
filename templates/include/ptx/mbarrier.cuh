// mbarriers in the CTA's shared memory, addressed by their 32-bit shared address.
//
// A barrier starts in phase 0 and moves on when its arrivals and its transaction bytes are complete. `wait(b, p)`
// returns once the phase of parity p has completed; on a fresh barrier wait(b, 1) returns at once.
namespace mbarrier {

DEVICE void init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Orders the inits before any use of the barriers by the async proxy. A CTA barrier must follow.
DEVICE void fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival that also announces the bytes which TMA will deliver in this phase.
DEVICE void arrive_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

DEVICE void wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n\t"
        ".reg .pred done;\n\t"
        "AGAIN:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra.uni AGAIN;\n\t"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

}  // namespace mbarrier
