// The roles of the attention kernel. Plain CUDA: what varies are the constants above.

// ---- sizes -------------------------------------------------------------------------------------------------------
constexpr u32 kTileRows = 128;
constexpr u32 kSlotColumns = kHeadDim < 128 ? kHeadDim : 128;  // a ring slot holds 128 keys by up to 128 columns
constexpr u32 kSlices = kHeadDim / kSlotColumns;               // slots a K or V tile takes
constexpr u32 kSlotBytes = kTileKeys * kSlotColumns * 2;
constexpr u32 kAtomBytes = kTileRows * kRowBytes;              // 128 rows of 64 columns: one TMA box
constexpr u32 kQTileBytes = kTileRows * kHeadDim * 2;

// ---- roles -------------------------------------------------------------------------------------------------------
constexpr u32 kCorrectionWarp = 4 * kQTiles;
constexpr u32 kMmaWarp = kCorrectionWarp + 4;
constexpr u32 kLoadWarp = kMmaWarp + 1;
constexpr u32 kEpilogueWarp = kMmaWarp + 2;
constexpr u32 kThreads = 32 * (kMmaWarp + 4);

// ---- tensor memory -----------------------------------------------------------------------------------------------
// Two score buffers: one for each of two query tiles, or two for successive key tiles of the only one. P takes the
// upper half of its score buffer.
constexpr u32 kTmemColumns = 512;
constexpr u32 kScoreColumn = 0;
constexpr u32 kProbabilityOffset = kTileKeys / 2;
constexpr u32 kOutputColumn = 2 * kTileKeys;
static_assert(kOutputColumn + kQTiles * kHeadDim <= kTmemColumns, "scores and outputs must fit tensor memory");

// The softmax hands P over in two parts, so that the MMA starts on the first while the second is made.
constexpr u32 kEarlyKeys = 96;

// ---- shared memory, from a 1024-byte boundary ----------------------------------------------------------------------
constexpr u32 kQOffset = 0;  // the staged output overwrites Q, which is dead by then
constexpr u32 kRingOffset = kQTiles * kQTileBytes;
constexpr u32 kStatsOffset = kRingOffset + kStages * kSlotBytes;  // [2][128] floats: a row's factor, finally its sum
constexpr u32 kBarrierOffset = kStatsOffset + 2 * kTileRows * 4;

// Barriers, by what they announce. A "buffer" is a score buffer.
constexpr u32 kQFull = kBarrierOffset;              // [query tile]  Q has arrived
constexpr u32 kOFull = kQFull + 8 * kQTiles;        // [query tile]  a P·V is complete
constexpr u32 kOStaged = kOFull + 8 * kQTiles;      // [query tile]  O is in shared memory
constexpr u32 kSFull = kOStaged + 8 * kQTiles;      // [buffer]      Q·K^T is complete
constexpr u32 kPFull = kSFull + 8 * 2;              // [buffer]      the early part of P is stored and O rescaled
constexpr u32 kPTail = kPFull + 8 * 2;              // [buffer]      the rest of P is stored
constexpr u32 kStatsFull = kPTail + 8 * 2;          // [buffer][warp] the warp's rows have their statistic
constexpr u32 kKvFull = kStatsFull + 8 * 2 * 4;     // [stage]       a slot has arrived
constexpr u32 kKvEmpty = kKvFull + 8 * kStages;     // [stage]       the MMAs that read a slot are complete
constexpr u32 kTmemAddress = kKvEmpty + 8 * kStages;
static_assert(kTmemAddress + 4 + 1008 <= kSharedBytes, "the layout and its alignment must fit the launch's shared memory");

struct Arguments {
    float* lse;       // (batch, num_heads, seqlen_q), or null
    float* out;       // used for float32 output only; its strides are in elements
    i64 out_row_stride, out_head_stride, out_batch_stride;
    int seqlen_q, seqlen_k;
    int heads_per_kv_head;
    float scale_log2;  // softmax_scale * log2(e)
};

// What this CTA works on.
struct Work {
    u32 shared;  // aligned base of shared memory
    u32 tmem;
    int first_row;
    int head, batch;
    int tiles[kQTiles];  // key tiles that each query tile sees; 0: none, or no rows
    int most_tiles;

    // `tiles[tile]` for a tile known only at run time, without forcing the array into local memory
    DEVICE int tiles_of(u32 tile) const {
        return tile == 0 ? tiles[0] : tiles[kQTiles - 1];
    }
};

struct Position {
    u32 index, parity;
};

// The score buffer of a query tile's i-th key tile, and the parity of that use.
DEVICE Position buffer_of(u32 tile, int i) {
    return kQTiles == 2 ? Position{tile, static_cast<u32>(i) & 1}
                        : Position{static_cast<u32>(i) & 1, (static_cast<u32>(i) >> 1) & 1};
}

DEVICE u32 score_tmem(const Work& work, u32 buffer) {
    return work.tmem + kScoreColumn + buffer * kTileKeys;
}

DEVICE u32 output_tmem(const Work& work, u32 tile) {
    return work.tmem + kOutputColumn + tile * kHeadDim;
}

// Keys before this index are visible to a row.
DEVICE int key_limit(const Arguments& arguments, int row) {
    return kCausal ? min(arguments.seqlen_k, row + 1 + arguments.seqlen_k - arguments.seqlen_q) : arguments.seqlen_k;
}

DEVICE int tile_first_row(const Work& work, u32 tile) {
    return work.first_row + static_cast<int>(tile * kTileRows);
}

DEVICE int visible_tiles(const Arguments& arguments, int first_row) {
    if (first_row >= arguments.seqlen_q) {
        return 0;
    }
    if (kStaticKvTiles != 0 && !kCausal) {
        return kStaticKvTiles;
    }
    const int last_row = min(first_row + static_cast<int>(kTileRows), arguments.seqlen_q) - 1;
    return (max(key_limit(arguments, last_row), 0) + kTileKeys - 1) / kTileKeys;
}

// With a static number of tiles a query tile that sees any sees them all, so that loops can be laid out.
DEVICE int trip_count(int tiles) {
    return kStaticKvTiles != 0 && tiles != 0 ? kStaticKvTiles : tiles;
}
constexpr int kUnroll = kStaticKvTiles != 0 ? kStaticKvTiles + 1 : 1;

// A walk through the ring's slots.
struct RingPosition {
    u32 stage = 0, phase = 0;
    DEVICE void advance() {
        if (++stage == kStages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// ---- load: one thread -----------------------------------------------------------------------------------------------
struct Loader {
    const Work& work;
    RingPosition ring;
    int used = 0;

    DEVICE void load_tile(const TensorMap* map, int first_key, int head) {
#pragma unroll
        for (u32 slice = 0; slice < kSlices; ++slice) {
            const u32 full = work.shared + kKvFull + 8 * ring.stage;
            const u32 slot = work.shared + kRingOffset + ring.stage * kSlotBytes;
            mbarrier::wait(work.shared + kKvEmpty + 8 * ring.stage, ring.phase ^ 1);
            mbarrier::arrive_expect(full, kSlotBytes);
#pragma unroll
            for (u32 c = 0; c < kSlotColumns; c += kAtomColumns) {
                tma::load(slot + c / kAtomColumns * kAtomBytes, map, full, slice * kSlotColumns + c, first_key, head,
                          work.batch);
            }
            ring.advance();
            ++used;
        }
    }

    // Until the MMAs have let go of every slot: the CTA must not end with an arrival still on its way.
    DEVICE void drain() {
        if (used < static_cast<int>(kStages)) ring = {0, 1};  // no slot was used twice: wait for the first uses
        for (int i = min(used, static_cast<int>(kStages)); i > 0; --i) {
            mbarrier::wait(work.shared + kKvEmpty + 8 * ring.stage, ring.phase ^ 1);
            ring.advance();
        }
    }
};

DEVICE void run_load(const Work& work, const Arguments& arguments, const TensorMap* q_map, const TensorMap* k_map,
                     const TensorMap* v_map) {
    tma::prefetch_map(q_map);
    tma::prefetch_map(k_map);
    tma::prefetch_map(v_map);
#pragma unroll
    for (u32 tile = 0; tile < kQTiles; ++tile) {
        if (work.tiles[tile] == 0) continue;
        const u32 full = work.shared + kQFull + 8 * tile;
        mbarrier::arrive_expect(full, kQTileBytes);
#pragma unroll
        for (u32 c = 0; c < kHeadDim; c += kAtomColumns) {
            tma::load(work.shared + kQOffset + tile * kQTileBytes + c / kAtomColumns * kAtomBytes, q_map, full, c,
                      tile_first_row(work, tile), work.head, work.batch);
        }
    }
    // The order in which the MMAs consume: two query tiles K0 V0 K1 V1 …, one K0 K1 V0 K2 V1 …
    const int kv_head = work.head / arguments.heads_per_kv_head;
    const int tiles = work.most_tiles;
    constexpr int kLag = kQTiles == 2 ? 0 : 1;  // by how many tiles V comes after K
    Loader loader{work};
    for (int i = 0; i < tiles + kLag; ++i) {
        if (i < tiles) loader.load_tile(k_map, (tiles - 1 - i) * kTileKeys, kv_head);
        if (i >= kLag) loader.load_tile(v_map, (tiles - 1 - i + kLag) * kTileKeys, kv_head);
    }
    loader.drain();
}

// ---- mma: one thread ------------------------------------------------------------------------------------------------
struct MmaIssuer {
    const Work& work;
    RingPosition k, v;  // where the current K and V tiles begin

    DEVICE u32 slot(const RingPosition& at) const {
        return work.shared + kRingOffset + at.stage * kSlotBytes;
    }
    DEVICE void wait_slot(const RingPosition& at) const {
        mbarrier::wait(work.shared + kKvFull + 8 * at.stage, at.phase);
        tcgen05::fence_after_sync();
    }
    DEVICE void release(RingPosition at) const {
#pragma unroll
        for (u32 slice = 0; slice < kSlices; ++slice) {
            tcgen05::commit(work.shared + kKvEmpty + 8 * at.stage);
            at.advance();
        }
    }

    // S = Q·K^T for the query tile's i-th key tile.
    DEVICE void score(u32 tile, int i) const {
        const Position buffer = buffer_of(tile, i);
        const u32 q = work.shared + kQOffset + tile * kQTileBytes;
        if (i == 0) mbarrier::wait(work.shared + kQFull + 8 * tile, 0);
        RingPosition at = k;
#pragma unroll
        for (u32 slice = 0; slice < kSlices; ++slice) {
            wait_slot(at);
            issue_qk<kSlotColumns, kTileRows, kTileKeys>(score_tmem(work, buffer.index),
                                                         q + slice * (kSlotColumns / kAtomColumns) * kAtomBytes, slot(at),
                                                         kDescriptorHigh, kQkInstruction, slice != 0);
            at.advance();
        }
        tcgen05::commit(work.shared + kSFull + 8 * buffer.index);
    }

    // O += P·V for the query tile's i-th key tile.
    DEVICE void accumulate(u32 tile, int i) const {
        const Position buffer = buffer_of(tile, i);
        const u32 p = score_tmem(work, buffer.index) + kProbabilityOffset;
        const u32 o = output_tmem(work, tile);
        RingPosition at = v;
#pragma unroll
        for (u32 slice = 0; slice < kSlices; ++slice) {
            wait_slot(at);
            if (slice == 0) {
                mbarrier::wait(work.shared + kPFull + 8 * buffer.index, buffer.parity);
                tcgen05::fence_after_sync();
            }
            const u32 columns = o + slice * kSlotColumns;
            issue_pv<0, kEarlyKeys, kTileKeys>(columns, p, slot(at), kDescriptorHigh, kPvInstruction, i != 0);
            if (slice == 0) {
                mbarrier::wait(work.shared + kPTail + 8 * buffer.index, buffer.parity);
                tcgen05::fence_after_sync();
            }
            issue_pv<kEarlyKeys, kTileKeys, kTileKeys>(columns, p, slot(at), kDescriptorHigh, kPvInstruction, true);
            at.advance();
        }
        tcgen05::commit(work.shared + kOFull + 8 * tile);
    }
};

DEVICE void advance_tile(RingPosition& at, u32 tiles) {
    for (u32 slot = 0; slot < tiles * kSlices; ++slot) at.advance();
}

DEVICE void run_mma(const Work& work) {
    MmaIssuer issuer{work};
    const int tiles = trip_count(work.most_tiles);
    if (tiles == 0) return;
    if constexpr (kQTiles == 2) {
        // PV0(i-1) QK0(i) PV1(i-1) QK1(i): while one query tile is in its softmax the other's products run. With a
        // causal mask the first query tile may see fewer keys, and then joins later.
        advance_tile(issuer.v, 1);
#pragma unroll kUnroll
        for (int i = 0; i <= tiles; ++i) {
#pragma unroll
            for (u32 tile = 0; tile < 2; ++tile) {
                const int own = i - (tiles - trip_count(work.tiles[tile]));  // the tile's own count of key tiles
                const bool seen = work.tiles[tile] != 0;
                if (seen && own >= 1) issuer.accumulate(tile, own - 1);
                if (tile == 1 && i >= 1) issuer.release(issuer.v);
                if (seen && own >= 0 && i < tiles) issuer.score(tile, own);
            }
            if (i < tiles) issuer.release(issuer.k);
            if (i >= 1) advance_tile(issuer.v, 2);
            advance_tile(issuer.k, 2);
        }
    } else {
        // QK(i) PV(i-1): the next scores are made while the softmax works on the last ones.
        // Slots: K0 K1 V0 K2 V1 …
        advance_tile(issuer.v, tiles == 1 ? 1 : 2);
#pragma unroll kUnroll
        for (int i = 0; i <= tiles; ++i) {
            if (i < tiles) {
                issuer.score(0, i);
                issuer.release(issuer.k);
                advance_tile(issuer.k, i == 0 ? 1 : 2);
            }
            if (i >= 1) {
                issuer.accumulate(0, i - 1);
                issuer.release(issuer.v);
                advance_tile(issuer.v, i + 1 < tiles ? 2 : 1);
            }
        }
    }
}

// ---- softmax: 128 threads a query tile --------------------------------------------------------------------------------
// One arrival a warp, after all its lanes' accesses.
DEVICE void arrive_warp(u32 barrier) {
    ptx::sync_warp();
    if (ptx::elect_one()) mbarrier::arrive(barrier);
}

DEVICE void run_softmax(const Work& work, const Arguments& arguments, u32 tile, u32 warp) {
    const u32 tile_row = warp * 32 + ptx::lane_index();
    const int row = tile_first_row(work, tile) + static_cast<int>(tile_row);
    const int limit = key_limit(arguments, row);
    const int least_limit = key_limit(arguments, tile_first_row(work, tile));
    const int tiles = trip_count(work.tiles_of(tile));
    const u32 lanes = warp << 21;  // the warp's 32 TMEM lanes, in the address's lane field
    RowState state;

#pragma unroll kUnroll
    for (int i = 0; i < tiles; ++i) {
        const Position buffer = buffer_of(tile, i);
        const u32 s_tmem = score_tmem(work, buffer.index) + lanes;
        const int first_key = (tiles - 1 - i) * kTileKeys;
        float s[kTileKeys];

        mbarrier::wait(work.shared + kSFull + 8 * buffer.index, buffer.parity);
        tcgen05::fence_after_sync();
        load_scores(s, s_tmem);
        if (first_key + kTileKeys > least_limit) mask_scores(s, limit - first_key);

        const float factor = update_max<kRescaleSlack>(state, max_of(s, state.max), arguments.scale_log2);
        if (i != 0) {
            const Position message = buffer_of(tile, i - 1);
            ptx::store_shared(work.shared + kStatsOffset + (message.index * kTileRows + tile_row) * 4, factor);
            arrive_warp(work.shared + kStatsFull + 8 * (message.index * 4 + warp));
        }
        const float bias = exponent_bias(state, s);
#pragma unroll
        for (int c = 0; c < kTileKeys; c += kChunk) {
            if (c == 0 || c + kChunk == kTileKeys) {
                // the first chunk is on the critical path and the last has nothing left to hide it
                exponentiate<0>(s + c, arguments.scale_log2, bias);
            } else {
                exponentiate<kExp2OnFma>(s + c, arguments.scale_log2, bias);
            }
            store_probabilities<Element>(s_tmem + kProbabilityOffset + c / 2, s + c);
            if (c + kChunk == kEarlyKeys || c + kChunk == kTileKeys) {
                tcgen05::wait_store();
                tcgen05::fence_before_sync();
                arrive_warp(work.shared + (c + kChunk == kEarlyKeys ? kPFull : kPTail) + 8 * buffer.index);
            }
        }
        state.sum += sum_of(s);
    }

    if (tiles != 0) {
        const Position message = buffer_of(tile, tiles - 1);
        if constexpr (kStaticKvTiles != 1) {
            // The sum goes where factors went: not before the correction has read the last of them.
            mbarrier::wait(work.shared + kPFull + 8 * message.index, message.parity);
        }
        ptx::store_shared(work.shared + kStatsOffset + (message.index * kTileRows + tile_row) * 4, state.sum);
        arrive_warp(work.shared + kStatsFull + 8 * (message.index * 4 + warp));
    }
    if (arguments.lse != nullptr && row < arguments.seqlen_q) {
        const i64 head = static_cast<i64>(work.batch) * gridDim.y + work.head;
        arguments.lse[head * arguments.seqlen_q + row] = log_sum_exp(state);
    }
}

// ---- correction: 128 threads --------------------------------------------------------------------------------------------
DEVICE void run_correction(const Work& work, const Arguments& arguments, u32 warp) {
    const u32 tile_row = warp * 32 + ptx::lane_index();
    const u32 lanes = warp << 21;
    const int tiles = trip_count(work.most_tiles);

    // The first P·V of a tile finds nothing to rescale.
#pragma unroll
    for (u32 tile = 0; tile < kQTiles; ++tile) {
        if (work.tiles[tile] != 0) arrive_warp(work.shared + kPFull + 8 * buffer_of(tile, 0).index);
    }
    if constexpr (kStaticKvTiles != 1) {
#pragma unroll kUnroll
        for (int i = 1; i < tiles; ++i) {
#pragma unroll
            for (u32 tile = 0; tile < kQTiles; ++tile) {
                const int own = i - (tiles - trip_count(work.tiles[tile]));
                if (work.tiles[tile] == 0 || own < 1) continue;
                const Position message = buffer_of(tile, own - 1);
                mbarrier::wait(work.shared + kStatsFull + 8 * (message.index * 4 + warp), message.parity);
                const float factor =
                    ptx::load_shared_float(work.shared + kStatsOffset + (message.index * kTileRows + tile_row) * 4);
                const bool rescale = ptx::any_lane(factor != 1.0f);
                // A parity tells a phase from its neighbours only. With two query tiles S(own) came after P·V(own-1), so
                // that phases may go unobserved; with one it came after P·V(own-2), and each has to be seen.
                if (rescale || kQTiles == 1) mbarrier::wait(work.shared + kOFull + 8 * tile, (own - 1) & 1);
                if (rescale) {
                    tcgen05::fence_after_sync();
                    rescale_output<kHeadDim>(output_tmem(work, tile) + lanes, factor);
                    tcgen05::fence_before_sync();
                }
                arrive_warp(work.shared + kPFull + 8 * buffer_of(tile, own).index);
            }
        }
    }

#pragma unroll
    for (u32 tile = 0; tile < kQTiles; ++tile) {
        const int own_tiles = trip_count(work.tiles[tile]);
        const int row = tile_first_row(work, tile) + static_cast<int>(tile_row);
        if (tile_first_row(work, tile) >= arguments.seqlen_q) continue;
        float factor = 0.0f;
        if (own_tiles != 0) {
            const Position message = buffer_of(tile, own_tiles - 1);
            mbarrier::wait(work.shared + kStatsFull + 8 * (message.index * 4 + warp), message.parity);
            const float sum =
                ptx::load_shared_float(work.shared + kStatsOffset + (message.index * kTileRows + tile_row) * 4);
            factor = sum == 0.0f ? 0.0f : reciprocal_approx(sum);
            mbarrier::wait(work.shared + kOFull + 8 * tile, (own_tiles - 1) & 1);
            tcgen05::fence_after_sync();
        }
#pragma unroll
        for (u32 c = 0; c < kHeadDim; c += 32) {
            float o[32] = {};
            if (own_tiles != 0) load_output(o, output_tmem(work, tile) + lanes + c, factor);
            if constexpr (kFloat32Output) {
                if (row < arguments.seqlen_q) {
                    store_output(arguments.out + work.batch * arguments.out_batch_stride +
                                     work.head * arguments.out_head_stride + row * arguments.out_row_stride + c,
                                 o);
                }
            } else {
                stage_output<Element, kTileRows>(work.shared + kQOffset + tile * kQTileBytes, tile_row, c, o);
            }
        }
        if constexpr (!kFloat32Output) {
            ptx::fence_proxy_async_shared();
            arrive_warp(work.shared + kOStaged + 8 * tile);
        }
    }
    tcgen05::fence_before_sync();  // the reads of TMEM come before its release
}

// ---- epilogue: one thread -------------------------------------------------------------------------------------------------
DEVICE void run_epilogue(const Work& work, const Arguments& arguments, const TensorMap* out_map) {
    if constexpr (!kFloat32Output) {
#pragma unroll
        for (u32 tile = 0; tile < kQTiles; ++tile) {
            if (tile_first_row(work, tile) >= arguments.seqlen_q) continue;
            mbarrier::wait(work.shared + kOStaged + 8 * tile, 0);
#pragma unroll
            for (u32 c = 0; c < kHeadDim; c += kAtomColumns) {
                tma::store(out_map, work.shared + kQOffset + tile * kQTileBytes + c / kAtomColumns * kAtomBytes, c,
                           tile_first_row(work, tile), work.head, work.batch);
            }
            tma::commit_stores();
        }
        tma::wait_stores_read();
    }
}

// ---- the CTA -----------------------------------------------------------------------------------------------------------------
DEVICE void initialise_barriers(u32 shared) {
    for (u32 tile = 0; tile < kQTiles; ++tile) {
        mbarrier::init(shared + kQFull + 8 * tile, 1);
        mbarrier::init(shared + kOFull + 8 * tile, 1);
        mbarrier::init(shared + kOStaged + 8 * tile, 4);
    }
    for (u32 buffer = 0; buffer < 2; ++buffer) {
        mbarrier::init(shared + kSFull + 8 * buffer, 1);
        mbarrier::init(shared + kPFull + 8 * buffer, 4 + 4);  // softmax and correction warps
        mbarrier::init(shared + kPTail + 8 * buffer, 4);
        for (u32 warp = 0; warp < 4; ++warp) mbarrier::init(shared + kStatsFull + 8 * (buffer * 4 + warp), 1);
    }
    for (u32 stage = 0; stage < kStages; ++stage) {
        mbarrier::init(shared + kKvFull + 8 * stage, 1);
        mbarrier::init(shared + kKvEmpty + 8 * stage, 1);
    }
    mbarrier::fence_init();
}

DEVICE void run_cta(const TensorMap& q_map, const TensorMap& k_map, const TensorMap& v_map, const TensorMap& out_map,
                    const Arguments& arguments) {
    extern __shared__ __align__(1024) unsigned char dynamic_shared[];
    const u32 warp = ptx::warp_index();

    Work work;
    work.shared = (ptx::shared_address(dynamic_shared) + 1023) & ~1023u;  // the alignment above is only asked for
    // A causal mask makes the last query tiles the longest: they start first.
    const u32 block = kCausal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    work.first_row = static_cast<int>(block * kQTiles * kTileRows);
    work.head = static_cast<int>(blockIdx.y);
    work.batch = static_cast<int>(blockIdx.z);
    work.most_tiles = 0;
#pragma unroll
    for (u32 tile = 0; tile < kQTiles; ++tile) {
        work.tiles[tile] = visible_tiles(arguments, tile_first_row(work, tile));
        work.most_tiles = max(work.most_tiles, work.tiles[tile]);
    }

    if (warp == kMmaWarp) {
        tcgen05::allocate(work.shared + kTmemAddress, kTmemColumns);
        tcgen05::fence_before_sync();
    } else if (warp == kLoadWarp) {
        if (ptx::elect_one()) initialise_barriers(work.shared);
    }
    __syncthreads();
    tcgen05::fence_after_sync();
    work.tmem = ptx::load_shared_u32(work.shared + kTmemAddress);

    if (warp < kCorrectionWarp) {
        ptx::set_registers<kSoftmaxRegisters, kThreads>();
        run_softmax(work, arguments, warp / 4, warp % 4);
    } else if (warp < kMmaWarp) {
        ptx::set_registers<kCorrectionRegisters, kThreads>();
        run_correction(work, arguments, warp - kCorrectionWarp);
    } else {
        ptx::set_registers<kOtherRegisters, kThreads>();
        if (warp == kMmaWarp) {
            if (ptx::elect_one()) run_mma(work);
        } else if (warp == kLoadWarp) {
            if (ptx::elect_one()) run_load(work, arguments, &q_map, &k_map, &v_map);
        } else if (warp == kEpilogueWarp) {
            if (ptx::elect_one()) run_epilogue(work, arguments, &out_map);
        }
    }

    __syncthreads();
    if (warp == kMmaWarp) {
        tcgen05::fence_after_sync();
        tcgen05::deallocate(work.tmem, kTmemColumns);
    }
}
