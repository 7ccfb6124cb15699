/** Masks against the definition by absolute positions (drafters.md §2 and §4). */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { maskBytes, shownRows } from "../../src/drafters/masks.ts";

test("a mask of differences is the mask of absolute positions", () => {
  const cases = fc.record({
    window: fc.option(fc.integer({ min: 1, max: 12 }), { nil: null }),
    causal: fc.boolean(),
    windowsBlock: fc.boolean(),
    width: fc.integer({ min: 1, max: 8 }),
    held: fc.integer({ min: 0, max: 20 }),
    limit: fc.option(fc.integer({ min: 1, max: 15 }), { nil: null }),
  });
  fc.assert(
    fc.property(cases, ({ width, held, limit, ...mask }) => {
      const shown = shownRows(mask, held, limit);
      const bytes = maskBytes(mask, width, shown);
      const n = held;
      for (let i = 0; i < width; i++) {
        for (let key = 0; key < n + width; key++) {
          const inBlock = key >= n;
          const inWindow = mask.window === null || key > n + i - mask.window;
          const visible = inBlock
            ? (!mask.causal || key <= n + i) && (!mask.windowsBlock || inWindow)
            : inWindow && (mask.window !== null || limit === null || key >= n - limit);
          const column = key - (n - shown);
          // Rows that are not shown at all must be rows that nobody sees.
          if (column < 0) expect(visible).toBe(false);
          else expect(bytes[i * (shown + width) + column]).toBe(visible ? 1 : 0);
        }
      }
    }),
  );
});

test("a user's window does not touch layers with one of their own", () => {
  const layer = { window: 8, causal: false, windowsBlock: true };
  expect(shownRows(layer, 100, 4)).toBe(7);
  expect(shownRows({ ...layer, window: null }, 100, 4)).toBe(4);
  expect(shownRows({ ...layer, window: null }, 100, null)).toBe(100);
});
