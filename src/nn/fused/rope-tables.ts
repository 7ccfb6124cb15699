/**
 * Tables of cosines and sines for the tokens of a step, made once for all layers that rotate alike. Rates are in float64:
 * the angle of a far position is then exact to float32, where MLX's own rotation rounds it before.
 */
import { concatenate, int32Array, type MlxArray } from "../../mlx/array.ts";
import { ropeTable } from "../../mlx/cpu.ts";
import type { StepBatch } from "../layer-state.ts";
import { dynamicRopeBase, type RopeSpec, ropeDivisors, ropeMagnitude } from "../rope.ts";

/** Tables of the running step, by rotation; they belong to the scope of its forward. */
const tablesOfStep = new WeakMap<StepBatch, Map<string, MlxArray>>();

export class RopeTables {
  /** Layers with the same rotation share their tables. */
  private readonly key: string;
  private readonly rates: Float64Array;
  private readonly magnitude: number;

  constructor(private readonly spec: RopeSpec) {
    this.key = JSON.stringify(spec);
    this.rates = ratesOf(spec);
    this.magnitude = ropeMagnitude(spec.scaling);
  }

  /** [total, dims]: cosines, then sines. */
  of(batch: StepBatch): MlxArray {
    let tables = tablesOfStep.get(batch);
    if (tables === undefined) {
      tables = new Map();
      tablesOfStep.set(batch, tables);
    }
    let table = tables.get(this.key);
    if (table === undefined) {
      table = this.make(batch);
      tables.set(this.key, table);
    }
    return table;
  }

  private make(batch: StepBatch): MlxArray {
    const { scaling } = this.spec;
    if (scaling.kind !== "dynamic") return ropeTable(batch.positions(), this.rates, this.magnitude);
    // The base grows with each row's length.
    const tables = batch.rows.map(({ offset, count }) => {
      const base = dynamicRopeBase(this.spec, scaling.factor, scaling.maxPositions, offset + count);
      const positions = int32Array(Int32Array.from({ length: count }, (_, i) => offset + i));
      return ropeTable(positions, ratesOf({ ...this.spec, base, scaling: { kind: "none" } }), 1);
    });
    return concatenate(tables, 0);
  }
}

/** Radians per position of each pair. */
function ratesOf(spec: RopeSpec): Float64Array {
  const factor = spec.scaling.kind === "linear" ? spec.scaling.factor : 1;
  return Float64Array.from(ropeDivisors(spec), (divisor) => 1 / (divisor * factor));
}
