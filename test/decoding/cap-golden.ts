/** The golden traces of the cap controller of the Python mlx-dspark. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { goldenRoot } from "../support/golden.ts";

type Table = Readonly<Record<string, number>>;

export interface CapTrace {
  readonly curve: string;
  readonly verify_ms: Table;
  readonly drafter_ms: Table | number;
  readonly max_cap: number;
  readonly params: {
    readonly init_cap: number;
    readonly allow_zero: boolean;
    readonly overhead_ms: number;
    readonly depth_slope: Table;
    readonly depth0: number;
  };
  readonly steps: readonly {
    readonly depth: number;
    readonly cap_used: number;
    readonly accepted: number;
    readonly round_ms: number | null;
    readonly committed: number;
    readonly cap_after: number;
    readonly best_after: number;
    readonly p: number;
    readonly corr: number;
    readonly observations: number;
  }[];
  readonly info: { readonly predicted_rates: Table };
  readonly "static_best_p0.70": number;
  readonly "static_best_p0.70_at_depth": Table;
  readonly "depth_adjusted_cap_default7_p0.70": Table;
  readonly knee_width: number;
}

export const capGolden = JSON.parse(
  readFileSync(join(goldenRoot("drafters"), "policy/cap_controller.json"), "utf8"),
) as { readonly controllers: readonly CapTrace[] };
