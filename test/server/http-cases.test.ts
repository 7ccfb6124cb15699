/** The shared HTTP cases against the app around the scripted engine. `test/e2e/` runs them against the executable. */
import { afterAll, expect, test } from "bun:test";
import { httpCases, runCase } from "../support/http-cases.ts";
import { PREDICATES } from "../support/http-predicates.ts";
import { repoRoot } from "../support/native.ts";
import { harness } from "./harness.ts";
import { writes } from "./scripted-engine.ts";

const h = harness((request) => writes(`1, 2, 3 (${request.sampling.seed})`));
afterAll(() => h.stop(0));

test("every case has its rule in code, and every rule its case", () => {
  expect(
    httpCases()
      .map(({ name }) => name)
      .sort(),
  ).toEqual(Object.keys(PREDICATES).sort());
});

for (const one of httpCases()) {
  test(one.name, async () => {
    const run = await runCase(one, { url: h.url, secrets: [repoRoot, "/models/somewhere"], alive: () => true });
    await PREDICATES[one.name]?.(run);
  });
}
