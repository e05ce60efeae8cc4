// The way of O out of TMEM: rescaled in place while keys still come, normalised and stored once at the end.
// Thread = row, as in the softmax.

// O[row, 0..kColumns-1] *= factor.
template <int kColumns>
DEVICE void rescale_output(u32 o_tmem, float factor) {
    const f32x2 factor2 = pack(factor, factor);
#pragma unroll
    for (int c = 0; c < kColumns; c += 32) {
        float o[32];
        tcgen05::load_columns(o, o_tmem + c);
        tcgen05::wait_load();
#pragma unroll
        for (int i = 0; i < 32; i += 2) {
            unpack(mul2(pack(o[i], o[i + 1]), factor2), o[i], o[i + 1]);
        }
        tcgen05::store_columns(o_tmem + c, o);
    }
    tcgen05::wait_store();
}

// 32 columns of O times `factor`; zeros if that is 0, whatever a NaN or infinity in V made of O.
DEVICE void load_output(float (&o)[32], u32 o_tmem, float factor) {
    tcgen05::load_columns(o, o_tmem);
    tcgen05::wait_load();
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        o[i] = factor == 0.0f ? 0.0f : o[i] * factor;
    }
}

// Writes 32 16-bit columns of one row to a 128-byte-swizzled tile of kRows rows, as TMA expects it.
template <class Element, u32 kRows>
DEVICE void stage_output(u32 tile_shared, u32 row, u32 column, const float (&o)[32]) {
    const u32 row_address = tile_shared + column / 64 * (kRows * 128) + row * 128;
#pragma unroll
    for (u32 i = 0; i < 32; i += 8) {
        const u32 chunk = (column % 64 + i) / 8;
        ptx::store_shared(row_address + ((chunk ^ (row % 8)) * 16), Element::round_pair(o[i], o[i + 1]),
                          Element::round_pair(o[i + 2], o[i + 3]), Element::round_pair(o[i + 4], o[i + 5]),
                          Element::round_pair(o[i + 6], o[i + 7]));
    }
}

// Writes 32 float32 columns of one row straight to global memory (16-byte aligned).
DEVICE void store_output(float* out, const float (&o)[32]) {
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        reinterpret_cast<float4*>(out)[i / 4] = make_float4(o[i], o[i + 1], o[i + 2], o[i + 3]);
    }
}
