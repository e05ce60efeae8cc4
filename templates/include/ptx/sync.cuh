// Warp- and CTA-level synchronisation that is not an mbarrier.
namespace ptx {

// True in one lane of a converged warp. Asynchronous instructions and the commits that track them must come from
// one and the same thread, so a role elects once and keeps the lane.
DEVICE bool elect_one() {
    u32 elected;
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "elect.sync _|p, 0xffffffff;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t"
        "}"
        : "=r"(elected));
    return elected != 0;
}

// The warp's index in the CTA, in a form the compiler knows to be the same in all 32 lanes.
DEVICE u32 warp_index() {
    u32 index;
    asm("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(index) : "r"(threadIdx.x / 32));
    return index;
}

DEVICE u32 lane_index() {
    return threadIdx.x % 32;
}

DEVICE void sync_warp() {
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}

DEVICE bool any_lane(bool predicate) {
    u32 result;
    asm volatile(
        "{\n\t"
        ".reg .pred p, q;\n\t"
        "setp.ne.u32 p, %1, 0;\n\t"
        "vote.sync.any.pred q, p, 0xffffffff;\n\t"
        "selp.u32 %0, 1, 0, q;\n\t"
        "}"
        : "=r"(result)
        : "r"(static_cast<u32>(predicate)));
    return result != 0;
}

// Gives this warpgroup kRegisters a thread, down or up from the even share that a CTA of kThreads starts with. All
// four warps execute the same one.
template <int kRegisters, int kThreads>
DEVICE void set_registers() {
    if constexpr (kRegisters > 65536 / kThreads / 8 * 8) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
    }
}

// Makes this thread's ordinary shared-memory writes visible to TMA and UMMA, which read through the async proxy.
DEVICE void fence_proxy_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

DEVICE void store_shared(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

DEVICE void store_shared(u32 address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

DEVICE float load_shared_float(u32 address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

DEVICE u32 load_shared_u32(u32 address) {
    u32 value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

}  // namespace ptx
