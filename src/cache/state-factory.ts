/** Chooses the cache of a layer from what the layer needs, from `--kv-bits` and from what the compute backend works on. */
import type { LayerState, StateFactory, StateLayout, StateSpec } from "../nn/layer-state.ts";
import { GrowingKv } from "./growing-kv.ts";
import { PackedKv } from "./packed-kv.ts";
import { QuantizedKv } from "./quantized-kv.ts";
import { RotatingKv } from "./rotating-kv.ts";

const GROUP_SIZES = [64, 32] as const;

/**
 * @param kvBits 0 keeps the activation dtype; 4 and 8 quantize growing caches (windows stay as they are)
 */
export function kvStates(kvBits: 0 | 4 | 8, layout: StateLayout = "arrays"): StateFactory {
  return {
    newState(spec: StateSpec, capacityMax: number): LayerState {
      const packed = layout === "packed";
      if (kvBits === 0 || spec.window !== null) {
        if (packed) return PackedKv.empty(spec, "float32", 0);
        return spec.window === null ? new GrowingKv(capacityMax) : new RotatingKv(spec.window);
      }
      const groupSize = GROUP_SIZES.find((size) => spec.headDim % size === 0);
      if (groupSize === undefined) {
        throw new RangeError(
          `--kv-bits ${kvBits} needs a head dimension that is a multiple of 32, this model has ${spec.headDim}`,
        );
      }
      if (packed) return PackedKv.empty(spec, kvBits === 8 ? "q8" : "q4", groupSize);
      return new QuantizedKv(capacityMax, kvBits, groupSize);
    },
  };
}
