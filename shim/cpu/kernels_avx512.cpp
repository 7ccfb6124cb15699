// The kernels for AVX-512 with BW, VL, DQ, VNNI.
#define DSPARK_SIMD 3 // DSPARK_AVX512
#define DSPARK_TABLE avx512_kernels
#define DSPARK_NAME "avx512"
#include "kernels.inl.h"
