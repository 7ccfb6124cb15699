/**
 * The key/value part of a GGUF file with typed reads; a missing or wrong value throws with the file and the key.
 * Integers that exceed 2^53 stay bigint and are refused wherever a number is asked for.
 */
import { CheckpointError } from "./errors.ts";

export type GgufScalar = string | number | bigint | boolean;
export type GgufValue = GgufScalar | readonly GgufScalar[];

export class GgufMetadata {
  constructor(
    private readonly file: string,
    readonly values: ReadonlyMap<string, GgufValue>,
  ) {}

  has(key: string): boolean {
    return this.values.has(key);
  }

  /** A safe integer. Throws when absent and no fallback is given. */
  int<F = number>(key: string, ...fallback: [F?]): number | F {
    return this.read(key, "an integer", fallback, (v): v is number => Number.isSafeInteger(v));
  }

  number<F = number>(key: string, ...fallback: [F?]): number | F {
    return this.read(key, "a finite number", fallback, (v): v is number => typeof v === "number" && Number.isFinite(v));
  }

  bool<F = boolean>(key: string, ...fallback: [F?]): boolean | F {
    return this.read(key, "a boolean", fallback, (v): v is boolean => typeof v === "boolean");
  }

  string<F = string>(key: string, ...fallback: [F?]): string | F {
    return this.read(key, "a string", fallback, (v): v is string => typeof v === "string");
  }

  strings<F = readonly string[]>(key: string, ...fallback: [F?]): readonly string[] | F {
    const isList = (v: GgufValue): v is readonly string[] => Array.isArray(v) && v.every((x) => typeof x === "string");
    return this.read(key, "a list of strings", fallback, isList);
  }

  ints<F = readonly number[]>(key: string, ...fallback: [F?]): readonly number[] | F {
    const isList = (v: GgufValue): v is readonly number[] =>
      Array.isArray(v) && v.every((x) => Number.isSafeInteger(x));
    return this.read(key, "a list of integers", fallback, isList);
  }

  /** One integer, or a list of equal ones (per-layer counts): other lists are refused. */
  uniformInt<F = number>(key: string, ...fallback: [F?]): number | F {
    const value = this.values.get(key);
    if (!Array.isArray(value)) return this.int(key, ...fallback);
    const list = this.ints(key);
    const [first] = list;
    if (first === undefined || list.some((other) => other !== first)) {
      return this.fail(key, "differs from layer to layer, which is not supported");
    }
    return first;
  }

  fail(key: string, message: string): never {
    throw new CheckpointError({ file: this.file, check: "gguf", message: `metadata key ${key}: ${message}` });
  }

  private read<T extends GgufValue, F>(
    key: string,
    what: string,
    fallback: readonly [F?],
    is: (value: GgufValue) => value is T,
  ): T | F {
    const value = this.values.get(key);
    if (value === undefined) {
      if (fallback.length > 0) return fallback[0] as F;
      return this.fail(key, `is required (${what})`);
    }
    return is(value) ? value : this.fail(key, `must be ${what}`);
  }
}
