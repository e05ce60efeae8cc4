// What the block kernels stand on: one CTA of 128 threads, where thread = row = TMEM lane, with all of tensor memory,
// two barriers and operands at a 1024-byte boundary. A block kernel runs one piece of the attention kernel alone, by
// the very functions that the attention kernel is made of.
constexpr u32 kRows = 128;
constexpr u32 kBlockThreads = 128;
constexpr u32 kTmemColumns = 512;

// Shared memory, from a 1024-byte boundary.
constexpr u32 kLoaded = 0;  // barrier: the operands have arrived
constexpr u32 kDone = 8;    // barrier: the MMAs are complete
constexpr u32 kTmemAddress = 16;
constexpr u32 kOperands = 1024;

struct Block {
    u32 shared;  // aligned base of shared memory
    u32 tmem;    // base of tensor memory, lane 0: what an MMA takes
    u32 warp, row;

    // The warp's own 32 lanes of a column: what its loads and stores take.
    DEVICE u32 lanes(u32 column) const {
        return tmem + (warp << 21) + column;
    }
};

DEVICE Block begin_block() {
    extern __shared__ __align__(1024) unsigned char dynamic_shared[];
    Block block;
    block.shared = (ptx::shared_address(dynamic_shared) + 1023) & ~1023u;
    block.warp = ptx::warp_index();
    block.row = threadIdx.x;
    if (block.warp == 0) {
        tcgen05::allocate(block.shared + kTmemAddress, kTmemColumns);
        tcgen05::fence_before_sync();
    } else if (block.warp == 1) {
        if (ptx::elect_one()) {
            mbarrier::init(block.shared + kLoaded, 1);
            mbarrier::init(block.shared + kDone, 1);
            mbarrier::fence_init();
        }
    }
    __syncthreads();
    tcgen05::fence_after_sync();
    block.tmem = ptx::load_shared_u32(block.shared + kTmemAddress);
    return block;
}

DEVICE void end_block(const Block& block) {
    tcgen05::fence_before_sync();
    __syncthreads();
    if (block.warp == 0) {
        tcgen05::fence_after_sync();
        tcgen05::deallocate(block.tmem, kTmemColumns);
    }
}

// Hands what all threads stored to tensor memory, or to shared memory, over to the thread that issues MMAs.
DEVICE void hand_over_to_mma() {
    tcgen05::wait_store();
    ptx::fence_proxy_async_shared();
    tcgen05::fence_before_sync();
    __syncthreads();
    tcgen05::fence_after_sync();
}

// One TMA box of kRows rows for each kAtomColumns columns of an operand; one thread.
template <u32 kColumns, u32 kAtom>
DEVICE void load_operand(const TensorMap& map, u32 destination, u32 barrier) {
    for (u32 column = 0; column < kColumns; column += kAtom) {
        tma::load(destination + column * kRows * 2, &map, barrier, column, 0, 0, 0);
    }
}

// The accumulator as float32, row by row, once the MMAs are complete.
template <u32 kColumns>
DEVICE void store_accumulator(const Block& block, float* out) {
    mbarrier::wait(block.shared + kDone, 0);
    tcgen05::fence_after_sync();
    for (u32 column = 0; column < kColumns; column += 32) {
        float o[32];
        load_output(o, block.lanes(column), 1.0f);
        store_output(out + block.row * kColumns + column, o);
    }
}
