/** The checked-in bindings are what the generator makes of the headers. */
import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { generate } from "../tools/bindings/generate.ts";
import { native } from "../tools/setup/versions.ts";

const root = join(import.meta.dir, "..");

test.skipIf(!existsSync(join(root, `build/deps/mlx-c-${native.mlxC}`)))(
  "src/mlx/bindings.ts matches the headers (else: make bindings)",
  () => {
    expect(readFileSync(join(root, "src/mlx/bindings.ts"), "utf8")).toBe(generate());
  },
);
