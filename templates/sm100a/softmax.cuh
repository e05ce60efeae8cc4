// Online softmax of one row per thread: TMEM lane = thread, so neither the maximum nor the sum needs a shuffle.
constexpr int kTileKeys = 128;
constexpr int kChunk = 32;  // columns per TMEM access

// Past this, the rounding of max * scale_log2 would show in the probabilities.
constexpr float kLargeBias = 8192.0f;

struct RowState {
    float max = -infinity();  // of the unscaled scores; a stale maximum is kept while it is near enough
    float bias = infinity();  // -max * scale_log2 as rounded: what the exponents really are relative to
    float sum = 0.0f;         // of exp2(score * scale_log2 + bias)

    DEVICE bool large() const {
        return fabsf(bias) > kLargeBias && max != -infinity();
    }
};

// Reads S[row, 0..127] from TMEM.
DEVICE void load_scores(float (&s)[kTileKeys], u32 s_tmem) {
#pragma unroll
    for (int c = 0; c < kTileKeys; c += kChunk) {
        tcgen05::load_columns(reinterpret_cast<float(&)[kChunk]>(s[c]), s_tmem + c);
    }
    tcgen05::wait_load();
}

// Hides keys at or past `limit` (relative to the tile) from this row.
DEVICE void mask_scores(float (&s)[kTileKeys], int limit) {
#pragma unroll
    for (int c = 0; c < kTileKeys; ++c) {
        s[c] = c < limit ? s[c] : -infinity();
    }
}

DEVICE float max_of(const float (&s)[kTileKeys], float start) {
    float m0 = start, m1 = s[1], m2 = s[2], m3 = s[3];  // four chains: the latency of one would be 64 steps
    m0 = max_nan(m0, s[0]);
#pragma unroll
    for (int c = 4; c < kTileKeys; c += 8) {
        m0 = max3(m0, s[c + 0], s[c + 1]);
        m1 = max3(m1, s[c + 2], s[c + 3]);
        if (c + 4 < kTileKeys) {
            m2 = max3(m2, s[c + 4], s[c + 5]);
            m3 = max3(m3, s[c + 6], s[c + 7]);
        }
    }
    return max_nan(max3(m0, m1, m2), m3);
}

// Takes the new maximum into the row's state and returns the factor by which what was accumulated must shrink.
// A maximum that grew by less than 2^kSlack keeps the old one: P stays below 2^kSlack, the factor is exactly 1, and
// the correction warps have nothing to do.
template <int kSlack>
DEVICE float update_max(RowState& row, float tile_max, float scale_log2) {
    const float previous = row.max;
    if ((tile_max - previous) * scale_log2 <= static_cast<float>(kSlack)) {
        return 1.0f;
    }
    if (tile_max == -infinity()) {
        return 1.0f;  // no key yet
    }
    const float previous_bias = row.bias;
    row.max = tile_max;
    row.bias = fmaf(tile_max, -scale_log2, tile_max * 0.0f);  // NaN for NaN and for +inf, as exp(inf - inf) is
    // From one rounded bias to the other, so that no rounding comes between tiles. First tile: exp2(-inf) = 0.
    const float factor = exp2_approx(row.large() ? (previous - tile_max) * scale_log2 : row.bias - previous_bias);
    row.sum *= factor;
    return factor;
}

// The addend of the exponent's FMA. Where it is large the maximum is subtracted from the scores first, exactly.
DEVICE float exponent_bias(const RowState& row, float (&s)[kTileKeys]) {
    if (ptx::any_lane(row.large())) {
        const float shift = row.large() ? row.max : 0.0f;
#pragma unroll
        for (int c = 0; c < kTileKeys; ++c) {
            s[c] -= shift;
        }
    }
    return row.max == -infinity() || row.large() ? 0.0f : row.bias;
}

// The log-sum-exp; a row that sees no key has sum = 0, the sum of any other is at least 2^-kSlack.
DEVICE float log_sum_exp(const RowState& row) {
    constexpr float kLn2 = 0.693147180559945309f;
    return row.sum == 0.0f ? -infinity() : (log2_approx(row.sum) - row.bias) * kLn2;
}

// s := exp2(s * scale_log2 + bias) for one chunk, pair by pair; the last kOnFma of the 16 pairs on the FMA pipe.
template <int kOnFma>
DEVICE void exponentiate(float* s, float scale_log2, float bias) {
    const f32x2 scale2 = pack(scale_log2, scale_log2);
    const f32x2 bias2 = pack(bias, bias);
#pragma unroll
    for (int c = 0; c < kChunk; c += 2) {
        f32x2 x = fma2(pack(s[c], s[c + 1]), scale2, bias2);
        if (c / 2 >= kChunk / 2 - kOnFma) {
            x = exp2_on_fma(x);
            unpack(x, s[c], s[c + 1]);
        } else {
            unpack(x, s[c], s[c + 1]);
            s[c] = exp2_approx(s[c]);
            s[c + 1] = exp2_approx(s[c + 1]);
        }
    }
}

DEVICE float sum_of(const float (&s)[kTileKeys]) {
    f32x2 a = pack(s[0], s[1]), b = pack(s[2], s[3]);
#pragma unroll
    for (int c = 4; c < kTileKeys; c += 4) {
        a = add2(a, pack(s[c], s[c + 1]));
        b = add2(b, pack(s[c + 2], s[c + 3]));
    }
    float low, high;
    unpack(add2(a, b), low, high);
    return low + high;
}

// Rounds a chunk of P to 16 bits and stores it, two values a column.
template <class Element>
DEVICE void store_probabilities(u32 p_tmem, const float* s) {
    u32 packed[kChunk / 2];
#pragma unroll
    for (int c = 0; c < kChunk; c += 2) {
        packed[c / 2] = Element::round_pair(s[c], s[c + 1]);
    }
    tcgen05::store_columns(p_tmem, packed);
}
