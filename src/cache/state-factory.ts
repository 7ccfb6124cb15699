/** Chooses the cache of a layer from what the layer needs and from `--kv-bits`. */
import type { LayerState, StateFactory, StateSpec } from "../nn/layer-state.ts";
import { GrowingKv } from "./growing-kv.ts";
import { QuantizedKv } from "./quantized-kv.ts";
import { RotatingKv } from "./rotating-kv.ts";

const GROUP_SIZES = [64, 32] as const;

/**
 * @param kvBits 0 keeps the activation dtype; 4 and 8 quantize growing caches (windows stay as they are)
 */
export function kvStates(kvBits: 0 | 4 | 8): StateFactory {
  return {
    newState(spec: StateSpec, capacityMax: number): LayerState {
      if (spec.window !== null) return new RotatingKv(spec.window);
      if (kvBits === 0) return new GrowingKv(capacityMax);
      const groupSize = GROUP_SIZES.find((size) => spec.headDim % size === 0);
      if (groupSize === undefined) {
        throw new RangeError(
          `--kv-bits ${kvBits} needs a head dimension that is a multiple of 32, this model has ${spec.headDim}`,
        );
      }
      return new QuantizedKv(capacityMax, kvBits, groupSize);
    },
  };
}
