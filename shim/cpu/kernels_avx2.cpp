// The kernels for AVX2, FMA, F16C.
#define DSPARK_SIMD 2 // DSPARK_AVX2
#define DSPARK_TABLE avx2_kernels
#define DSPARK_NAME "avx2"
#include "kernels.inl.h"
