/** Opens MLX on the test's thread, from the staged development libraries. */
import { join } from "node:path";
import { openMlx, selectDevice } from "../../src/mlx/native.ts";

export const repoRoot = join(import.meta.dir, "../..");

export function openTestMlx(): void {
  openMlx(join(repoRoot, "build/native"));
  selectDevice("cpu");
}
