// The kernels for any machine.
#define DSPARK_SIMD 0 // DSPARK_PORTABLE
#define DSPARK_TABLE portable_kernels
#define DSPARK_NAME "portable"
#include "kernels.inl.h"
