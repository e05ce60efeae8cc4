// The two products of attention as UMMA instructions, on tiles that TMA wrote with the 128-byte swizzle.
//
// A tile of 64 16-bit columns is an atom: rows of 128 bytes, the 16-byte chunks of a row XORed with the row's index
// in its group of 8. Atoms of a wider tile follow each other in shared memory. One instruction takes K = 16.
//
// Within an atom the next K-step is +32 bytes on the descriptor's start address: the hardware applies the XOR to the
// final address, and as atoms are 1024-byte aligned the bits that select the XOR don't change.
constexpr u32 kAtomColumns = 64;
constexpr u32 kRowBytes = 128;
constexpr u32 kInstructionK = 16;

// D[128 x N] (+)= A[128 x kColumns] · B[N x kColumns]^T, both operands K-major in shared memory.
// `high` is the constant upper descriptor word. Issued by one thread.
template <u32 kColumns, u32 kRowsA, u32 kRowsB>
DEVICE void issue_qk(u32 d, u32 a_shared, u32 b_shared, u32 high, u32 instruction, bool accumulate) {
    const u32 a_low = tcgen05::descriptor_low(a_shared, 0);
    const u32 b_low = tcgen05::descriptor_low(b_shared, 0);
#pragma unroll
    for (u32 k = 0; k < kColumns; k += kInstructionK) {
        const u32 atom = k / kAtomColumns;
        const u32 step_bytes = (k % kAtomColumns) * 2;
        const u64 a = tcgen05::descriptor(high, a_low + (atom * kRowsA * kRowBytes + step_bytes) / 16);
        const u64 b = tcgen05::descriptor(high, b_low + (atom * kRowsB * kRowBytes + step_bytes) / 16);
        tcgen05::mma_ss(d, a, b, instruction, accumulate || k != 0);
    }
}

// D[128 x N] (+)= P[128 x keys] · V[keys x N] for keys kFirst .. kLast-1 of a tile of kKeys. P is in TMEM, two 16-bit values a column; V is as
// loaded, keys by columns, which to UMMA is a B operand whose N runs fastest (MN-major): 16 keys further is
// 16 * 128 bytes, and the leading-dimension offset leads from one 64-column atom to the next.
template <u32 kFirst, u32 kLast, u32 kKeys>
DEVICE void issue_pv(u32 d, u32 p, u32 v_shared, u32 high, u32 instruction, bool accumulate) {
    const u32 v_low = tcgen05::descriptor_low(v_shared, kKeys * kRowBytes);
#pragma unroll
    for (u32 k = kFirst; k < kLast; k += kInstructionK) {
        const u64 v = tcgen05::descriptor(high, v_low + k * kRowBytes / 16);
        tcgen05::mma_ts(d, p + k / 2, v, instruction, accumulate || k != 0);
    }
}
