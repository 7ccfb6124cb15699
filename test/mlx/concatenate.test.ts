/** Joined arrays of every kind that a device may join by itself, against the same on the host. */
import { beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  concatenate,
  dtypeOf,
  int32Array,
  liveArrays,
  type MlxArray,
  scope,
  shapeOf,
  toInt32,
} from "../../src/mlx/array.ts";
import { astype, reshape, slice, transpose } from "../../src/mlx/ops.ts";
import { openTestMlx } from "../support/native.ts";

beforeAll(() => {
  openTestMlx();
});

interface Made {
  readonly array: MlxArray;
  readonly values: readonly (readonly number[])[];
}

let next = 0;

/** A matrix of numbers that are all different: as it is, a part of a larger one, or one that lies the other way. */
function matrix(rows: number, columns: number, form: "whole" | "part" | "turned", dtype: "int32" | "float32"): Made {
  const values = Array.from({ length: rows }, () => Array.from({ length: columns }, () => next++ % 4096));
  const typed = (array: MlxArray) => (dtype === "int32" ? array : astype(array, dtype));
  if (form === "whole") return { array: typed(reshape(int32Array(values.flat()), [rows, columns])), values };
  if (form === "part") {
    const wide = values.map((row) => [-1, ...row, -2]);
    const large = typed(reshape(int32Array([...wide, wide[0] ?? []].flat()), [rows + 1, columns + 2]));
    return { array: slice(large, [0, 1], [rows, columns + 1]), values };
  }
  const turned = Array.from({ length: columns }, (_, c) => values.map((row) => row[c] ?? 0));
  return { array: transpose(typed(reshape(int32Array(turned.flat()), [columns, rows])), [1, 0]), values };
}

const form = fc.constantFrom("whole" as const, "part" as const, "turned" as const);
const dtype = fc.constantFrom("int32" as const, "float32" as const);
const part = fc.record({ size: fc.integer({ min: 1, max: 5 }), form });

describe.each([0, 1])("along axis %p", (axis) => {
  test("matrices of any layout", () => {
    const before = liveArrays();
    fc.assert(
      fc.property(
        fc.array(part, { minLength: 1, maxLength: 7 }),
        fc.integer({ min: 1, max: 5 }),
        dtype,
        (parts, other, type) => {
          scope(() => {
            const made = parts.map(({ size, form: lying }) =>
              axis === 0 ? matrix(size, other, lying, type) : matrix(other, size, lying, type),
            );
            const joined = concatenate(
              made.map(({ array }) => array),
              axis,
            );
            const rows =
              axis === 0
                ? made.flatMap(({ values }) => values)
                : (made[0]?.values.map((_, r) => made.flatMap(({ values }) => values[r] ?? [])) ?? []);
            expect(shapeOf(joined)).toEqual([rows.length, rows[0]?.length ?? 0]);
            expect(dtypeOf(joined)).toBe(type);
            expect([...toInt32(joined)]).toEqual(rows.flat());
          });
        },
      ),
    );
    expect(liveArrays()).toBe(before);
  });
});

test("vectors, empty ones among them", () => {
  fc.assert(
    fc.property(
      fc.array(fc.array(fc.nat({ max: 99 }), { maxLength: 4 }), { minLength: 1, maxLength: 6 }),
      (vectors) => {
        scope(() => {
          expect([
            ...toInt32(
              concatenate(
                vectors.map((values) => int32Array(values)),
                0,
              ),
            ),
          ]).toEqual(vectors.flat());
        });
      },
    ),
  );
});

test("large ones, other types, more axes and a mixture", () => {
  scope(() => {
    const large = Int32Array.from({ length: 300_000 }, (_, i) => i);
    const twice = toInt32(concatenate([int32Array(large), int32Array(large)], 0));
    expect(twice.length).toBe(600_000);
    expect([twice[0], twice[299_999], twice[300_000], twice[599_999]]).toEqual([0, 299_999, 0, 299_999]);
    const half = astype(int32Array([1, 2]), "float16");
    expect([...toInt32(concatenate([half, half], 0))]).toEqual([1, 2, 1, 2]);
    const mixed = concatenate([int32Array([1, 2]), astype(int32Array([3]), "float32")], 0);
    expect([dtypeOf(mixed), ...toInt32(mixed)]).toEqual(["float32", 1, 2, 3]);
    const cube = reshape(int32Array([1, 2, 3, 4]), [1, 2, 2]);
    expect([...toInt32(concatenate([cube, cube], 2))]).toEqual([1, 2, 1, 2, 3, 4, 3, 4]);
    expect([
      ...toInt32(concatenate([reshape(int32Array([1, 2]), [1, 2]), reshape(int32Array([3, 4]), [1, 2])], -1)),
    ]).toEqual([1, 2, 3, 4]);
  });
});
