import { expect, test } from "bun:test";
import { Rest } from "../../src/server/generation/rest.ts";
import { until } from "./harness.ts";

const AFTER_MS = 20;

test("collects once, a while after the last piece of work", async () => {
  let collected = 0;
  const rest = new Rest(
    () => false,
    AFTER_MS,
    () => collected++,
  );
  for (let i = 0; i < 5; i++) rest.later();
  expect(collected).toBe(0);
  await until(() => collected === 1);
  await Bun.sleep(2 * AFTER_MS);
  expect(collected).toBe(1);
});

test("does nothing while work is under way, nor after it was cancelled", async () => {
  let collected = 0;
  let busy = true;
  const rest = new Rest(
    () => busy,
    AFTER_MS,
    () => collected++,
  );
  rest.later();
  await Bun.sleep(2 * AFTER_MS);
  busy = false;
  rest.later();
  rest.cancel();
  await Bun.sleep(2 * AFTER_MS);
  expect(collected).toBe(0);
});
