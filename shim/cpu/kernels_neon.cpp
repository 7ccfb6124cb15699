// The kernels for AArch64 Advanced SIMD.
#define DSPARK_SIMD 4 // DSPARK_NEON
#define DSPARK_TABLE neon_kernels
#define DSPARK_NAME "neon"
#include "kernels.inl.h"
