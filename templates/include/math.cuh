// Float arithmetic beyond C's operators: pairs in one 64-bit register (f32x2, sm_100 and later), conversions that
// round two values into one register, and 2^x on either pipe.
struct f32x2 {
    u64 bits;
};

DEVICE f32x2 pack(float low, float high) {
    f32x2 r;
    asm("mov.b64 %0, {%1, %2};" : "=l"(r.bits) : "f"(low), "f"(high));
    return r;
}

DEVICE void unpack(f32x2 v, float& low, float& high) {
    asm("mov.b64 {%0, %1}, %2;" : "=f"(low), "=f"(high) : "l"(v.bits));
}

DEVICE f32x2 fma2(f32x2 a, f32x2 b, f32x2 c) {
    f32x2 r;
    asm("fma.rn.ftz.f32x2 %0, %1, %2, %3;" : "=l"(r.bits) : "l"(a.bits), "l"(b.bits), "l"(c.bits));
    return r;
}

DEVICE f32x2 mul2(f32x2 a, f32x2 b) {
    f32x2 r;
    asm("mul.rn.ftz.f32x2 %0, %1, %2;" : "=l"(r.bits) : "l"(a.bits), "l"(b.bits));
    return r;
}

DEVICE f32x2 add2(f32x2 a, f32x2 b) {
    f32x2 r;
    asm("add.rn.ftz.f32x2 %0, %1, %2;" : "=l"(r.bits) : "l"(a.bits), "l"(b.bits));
    return r;
}

DEVICE f32x2 add2_round_down(f32x2 a, f32x2 b) {
    f32x2 r;
    asm("add.rm.ftz.f32x2 %0, %1, %2;" : "=l"(r.bits) : "l"(a.bits), "l"(b.bits));
    return r;
}

// NaN if any is NaN: a row that meets a NaN must become NaN, not lose it.
DEVICE float max3(float a, float b, float c) {
    float r;
    asm("max.NaN.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
    return r;
}

DEVICE float max_nan(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

DEVICE float exp2_approx(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

DEVICE float log2_approx(float x) {
    float r;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

DEVICE float reciprocal_approx(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

DEVICE float infinity() {
    return __int_as_float(0x7f800000);
}

// 2^x for a pair on the FMA pipe, for x <= 8. The special-function unit does 16 exponentials a clock and is as busy
// as the tensor core in attention; sharing the work with the FMA pipe takes it off the critical path.
//
// Cody-Waite: floor(x) by adding 1.5 * 2^23 rounded down (its low mantissa bits are then floor(x)), a cubic for 2^f
// on [0, 1) (minimax with p(0) = 1, relative error below 9e-5, far under the rounding of P to 16 bits), and
// floor(x) added into the exponent field. Below -127 the result is exactly 0. NaN and infinity are not kept: callers
// see to it that a row with either is NaN through the other path as well.
DEVICE f32x2 exp2_on_fma(f32x2 x) {
    float x0, x1;
    unpack(x, x0, x1);
    x = pack(fmaxf(x0, -127.0f), fmaxf(x1, -127.0f));
    const f32x2 shifter = pack(12582912.0f, 12582912.0f);
    const f32x2 shifted = add2_round_down(x, shifter);
    const f32x2 whole = add2(shifted, pack(-12582912.0f, -12582912.0f));
    const f32x2 f = fma2(whole, pack(-1.0f, -1.0f), x);
    f32x2 p = fma2(pack(0.0770671740f, 0.0770671740f), f, pack(0.2276448474f, 0.2276448474f));
    p = fma2(p, f, pack(0.6951168188f, 0.6951168188f));
    p = fma2(p, f, pack(1.0f, 1.0f));
    float p0, p1, s0, s1;
    unpack(p, p0, p1);
    unpack(shifted, s0, s1);
    return pack(__int_as_float(__float_as_int(p0) + (__float_as_int(s0) << 23)),
                __int_as_float(__float_as_int(p1) + (__float_as_int(s1) << 23)));
}

// Two floats rounded into one 32-bit register, `low` in the low half.
struct Bfloat16 {
    static DEVICE u32 round_pair(float low, float high) {
        u32 r;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
        return r;
    }
};

struct Float16 {
    static DEVICE u32 round_pair(float low, float high) {
        u32 r;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
        return r;
    }
};
