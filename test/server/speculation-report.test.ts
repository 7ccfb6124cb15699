/** What `/health` and `/v1/models` say of how the loaded pair drafts. */
import { expect, test } from "bun:test";
import type { ModelInfo } from "../../src/engine/protocol.ts";
import { readMemory } from "../../src/machine/system.ts";
import { healthBody } from "../../src/server/health.ts";
import { modelEntry } from "../../src/server/models.ts";
import { DEFAULT_SERVER_OPTIONS } from "../../src/server/options.ts";
import { ByteText } from "./byte-text.ts";
import { SCRIPTED_MODEL } from "./scripted-engine.ts";

function health(model: ModelInfo): Record<string, unknown> {
  const queue = { running: 0, waiting: 0 };
  return healthBody({
    ...{ status: { state: "ready", model }, text: new ByteText(), counters: null, queue },
    ...{ options: DEFAULT_SERVER_OPTIONS, wish: null, memory: readMemory(), uptimeSeconds: 1 },
  });
}

const DRAFTING = {
  maxDraft: "auto",
  lookupDrafts: true,
  confidenceThreshold: 0.3,
  drafterWindow: 4096,
  drafterBytes: 1,
  costs: null,
} as const;

test("a pair: its drafter, cap, lookup, threshold and window", () => {
  const model: ModelInfo = { ...SCRIPTED_MODEL, mode: "dspark", drafter: "scripted-dspark", drafting: DRAFTING };
  expect(health(model)).toMatchObject({
    mode: "dspark",
    drafter: "scripted-dspark",
    max_draft: "auto",
    lookup_drafts: true,
    confidence_threshold: 0.3,
    drafter_window: 4096,
  });
  expect(health({ ...model, drafting: { ...DRAFTING, maxDraft: 4 } }).max_draft).toBe("4");
  const entry = modelEntry({ model, loadedAt: 0 }, DEFAULT_SERVER_OPTIONS, false);
  expect(entry.x_mlx_dspark).toEqual({ mode: "dspark", target: "scripted-1b", drafter: "scripted-dspark" });
});

test("without drafts there is nothing to cap", () => {
  expect(health(SCRIPTED_MODEL)).toMatchObject({
    ...{ mode: "baseline", drafter: null, max_draft: "0", lookup_drafts: false },
    ...{ confidence_threshold: 0, drafter_window: null },
  });
});
