// The few types that every kernel here needs. The sources include no header at all, so that NVRTC alone compiles
// them; fixed-width names are therefore our own.
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

// The driver's opaque 128-byte CUtensorMap. CUDA 12 aligns it to 64 bytes, CUDA 13 to 128: the larger suits both.
struct alignas(128) TensorMap {
    u64 opaque[16];
};

#define DEVICE __device__ __forceinline__
