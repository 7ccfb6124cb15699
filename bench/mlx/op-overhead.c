/*
 * One burst per line of input: additions of two scalars through mlx-c itself, in groups that are freed together.
 * Usage: op-overhead <operations per burst> <operations per group>
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mlx/c/mlx.h"

static double nanoseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  const int operations = atoi(argv[1]);
  const int group = atoi(argv[2]);
  const mlx_device device = mlx_device_new_type(MLX_CPU, 0);
  mlx_set_default_device(device);
  const mlx_stream stream = mlx_stream_new_device(device);
  const mlx_array a = mlx_array_new_float32(1);
  const mlx_array b = mlx_array_new_float32(2);
  mlx_array* results = calloc((size_t)group, sizeof(mlx_array));
  char line[64];
  while (fgets(line, sizeof(line), stdin) != NULL) {
    const double wall = nanoseconds(CLOCK_MONOTONIC);
    const double thread = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    const double process = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int done = 0; done < operations; done += group) {
      for (int i = 0; i < group; i++) {
        results[i].ctx = NULL;
        if (mlx_add(&results[i], a, b, stream) != 0) {
          return 1;
        }
      }
      for (int i = 0; i < group; i++) {
        mlx_array_free(results[i]);
      }
    }
    printf(
        "{\"wall_ns\": %f, \"thread_ns\": %f, \"process_ns\": %f}\n",
        (nanoseconds(CLOCK_MONOTONIC) - wall) / operations,
        (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - thread) / operations,
        (nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - process) / operations);
    fflush(stdout);
  }
  return 0;
}
