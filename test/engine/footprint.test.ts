/** What a step reads of the weights: tied and untied embeddings, experts by share, a config that does not tell. */
import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ConfigSection } from "../../src/checkpoint/config-json.ts";
import { keptBandwidth, measureBandwidth } from "../../src/engine/bandwidth.ts";
import { expertsOf, footprint } from "../../src/engine/footprint.ts";

const DENSE = [
  ["model.embed_tokens.weight", 100],
  ["model.layers.0.mlp.down_proj.weight", 50],
] as const;
const NO_EXPERTS = { experts: 0, perToken: null };

describe("active bytes", () => {
  test("a tied embedding is the head and counts; an untied one is a row gather and does not", () => {
    expect(footprint(DENSE, NO_EXPERTS, 150)).toMatchObject({ totalBytes: 150, activeBytes: 150, embedBytes: 100 });
    const untied = [...DENSE, ["lm_head.weight", 100]] as const;
    expect(footprint(untied, NO_EXPERTS, 250)).toMatchObject({ totalBytes: 250, activeBytes: 150 });
  });

  test("experts count by share; whole, and marked, when the share is unknown", () => {
    const tensors = [...DENSE, ["model.layers.0.mlp.switch_mlp.up_proj.weight", 800]] as const;
    expect(footprint(tensors, { experts: 8, perToken: 2 }, 950)).toMatchObject({
      activeBytes: 350,
      expertBytes: 800,
      activeIsEstimate: false,
    });
    expect(footprint(tensors, { experts: 8, perToken: null }, 950)).toMatchObject({
      activeBytes: 950,
      activeIsEstimate: true,
    });
  });

  test("what is packed otherwise in memory than in the file scales with it", () => {
    expect(footprint(DENSE, NO_EXPERTS, 300)).toMatchObject({ totalBytes: 300, activeBytes: 300, embedBytes: 200 });
    expect(footprint([], NO_EXPERTS, 0)).toMatchObject({ totalBytes: 0, activeBytes: 0 });
  });
});

test.each([
  [
    { num_experts: 64, num_experts_per_tok: 8 },
    { experts: 64, perToken: 8 },
  ],
  [{ text_config: { num_local_experts: 16, experts_per_token: 2 } }, { experts: 16, perToken: 2 }],
  [{ n_routed_experts: 4 }, { experts: 4, perToken: null }],
  [
    { num_experts: 1, num_experts_per_tok: 1 },
    { experts: 0, perToken: null },
  ],
  [{}, { experts: 0, perToken: null }],
])("experts of %p", (config, found) => {
  expect(expertsOf(new ConfigSection("config.json", config))).toEqual(found);
});

test("the bandwidth is measured once and kept", () => {
  const folder = mkdtempSync(join(tmpdir(), "bandwidth-"));
  try {
    expect(keptBandwidth(folder)).toBeNull();
    const measured = measureBandwidth(folder);
    expect(measured.gbS).toBeGreaterThan(0.1);
    expect(keptBandwidth(folder)).toEqual(measured);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
