/** Elements copied out of arrays, whatever order they lie in. */
import { beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { firstInt, int32Array, liveArrays, scope, toInt32 } from "../../src/mlx/array.ts";
import { broadcastTo, reshape, slice, transpose } from "../../src/mlx/ops.ts";
import { openTestMlx } from "../support/native.ts";

beforeAll(() => {
  openTestMlx();
});

const size = fc.integer({ min: 1, max: 5 });

test("parts, transposes and repeats of a matrix come in row order", () => {
  const before = liveArrays();
  fc.assert(
    fc.property(size, size, size, size, fc.boolean(), (rows, columns, fromRow, fromColumn, turned) => {
      scope(() => {
        const [height, width] = [rows + fromRow, columns + fromColumn];
        const values = Int32Array.from({ length: height * width }, (_, i) => i * i - 7);
        const matrix = reshape(int32Array(values), [height, width]);
        const part = slice(matrix, [fromRow, fromColumn], [height, width]);
        const wanted = Array.from({ length: rows * columns }, (_, i) => {
          const [r, c] = turned ? [i % rows, Math.floor(i / rows)] : [Math.floor(i / columns), i % columns];
          return values[(fromRow + r) * width + fromColumn + c];
        });
        const shown = turned ? transpose(part, [1, 0]) : part;
        expect([...toInt32(shown)]).toEqual(wanted as number[]);
        expect(firstInt(shown)).toBe(wanted[0] as number);
        // A second look finds the same, and so does one at the whole.
        expect([...toInt32(shown)]).toEqual(wanted as number[]);
        expect([...toInt32(matrix)]).toEqual([...values]);
        expect([...toInt32(broadcastTo(slice(matrix, [0, 0], [1, 1]), [rows, columns]))]).toEqual(
          new Array<number>(rows * columns).fill(-7),
        );
      });
    }),
  );
  expect(liveArrays()).toBe(before);
});

test("what was copied is the caller's own", () => {
  scope(() => {
    const array = int32Array([1, 2, 3]);
    toInt32(array).fill(9);
    expect([...toInt32(array)]).toEqual([1, 2, 3]);
  });
});
