/** The heads of the three kinds from a drafter's tensors. */
import { dtypeOf, float32Array, type MlxArray, NONE, uint32Array } from "../mlx/array.ts";
import { addmm, astype, swapaxes } from "../mlx/ops.ts";
import type { Compute } from "../nn/compute.ts";
import { activate } from "../nn/stock.ts";
import type { TargetParts } from "../nn/target-parts.ts";
import type { LinearWeights } from "../nn/weights.ts";
import type { BlockHead } from "./block-drafter.ts";
import { ConfidenceHead } from "./confidence.ts";
import { type DFlashEnds, DFlashHead } from "./dflash.ts";
import { DFlash2Head } from "./dflash2.ts";
import { DSparkHead } from "./dspark.ts";
import { DrafterError } from "./errors.ts";
import { logSnrFeatures } from "./log-snr.ts";
import { MarkovHead } from "./markov.ts";
import { Selector } from "./selector.ts";
import type { DFlashSettings, DrafterSettings, DSparkSettings } from "./settings.ts";
import { SNR_FEATURES } from "./tensor-table.ts";
import { DraftVocabulary } from "./vocabulary.ts";
import type { DrafterWeights } from "./weights.ts";

export interface HeadMaterial {
  readonly dir: string;
  readonly weights: DrafterWeights;
  readonly target: TargetParts;
  readonly compute: Pick<Compute, "embedding" | "linear" | "greedyWalk">;
}

export function buildHead(settings: DrafterSettings, material: HeadMaterial): BlockHead {
  return settings.kind === "dspark" ? buildDSpark(settings, material) : buildDFlash(settings, material);
}

function buildDSpark(settings: DSparkSettings, material: HeadMaterial): BlockHead {
  const { weights, target, compute } = material;
  const { backbone, markov, confidence, vocab, idLimit } = settings;
  return new DSparkHead({
    embedding: settings.ownEmbed ? compute.embedding(weights.matrix(["embed_tokens"])) : null,
    embedScale: backbone.family === "gemma4" ? Math.sqrt(backbone.hidden) : 1,
    head: settings.ownHead ? compute.linear(outputs(weights, "lm_head", idLimit)) : null,
    target,
    vocab,
    vocabulary: buildVocabulary(settings, material),
    softcap: settings.softcap,
    markov: markov === null ? null : buildMarkov(markov, idLimit, material),
    confidence:
      confidence === null
        ? null
        : new ConfidenceHead(
            compute.linear(weights.linear(["confidence_head.proj"], true)),
            confidence === "hidden+markov",
          ),
    slotOffsets: settings.logSnr === null ? NONE : slotOffsets(settings.block, weights),
  });
}

function buildMarkov(
  { type, rank }: NonNullable<DSparkSettings["markov"]>,
  idLimit: number | null,
  { weights, compute }: HeadMaterial,
): MarkovHead {
  const before = compute.embedding(weights.matrix(["markov_head.markov_w1"]));
  const after = compute.linear(outputs(weights, "markov_head.markov_w2", idLimit));
  if (type === "vanilla") {
    return new MarkovHead({ before, after, joint: null, type, rank, greedy: compute.greedyWalk(before, after) });
  }
  const name = type === "gated" ? "gate_proj" : "joint_proj";
  const joint = compute.linear(weights.linear([`markov_head.${name}`], true));
  return new MarkovHead({ before, after, joint, type, rank, greedy: null });
}

/** A matrix with a row for each draft id. */
function outputs(weights: DrafterWeights, path: string, idLimit: number | null): LinearWeights {
  return idLimit === null ? weights.linear([path], false) : weights.firstRows(path, idLimit);
}

/** Maps draft ids to the target's; a table that leaves the target's vocabulary or names an id twice is refused. */
function buildVocabulary(settings: DSparkSettings, { dir, weights, target }: HeadMaterial): DraftVocabulary {
  const { draftVocab, vocab, idLimit } = settings;
  if (draftVocab === null) return new DraftVocabulary(idLimit ?? vocab, null, target.vocabSize);
  const ids = weights.integers("d2t").map((offset, id) => id + offset);
  const outside = ids.find((id) => id < 0 || id >= target.vocabSize);
  if (outside !== undefined || new Set(ids).size !== ids.length) {
    const what = outside === undefined ? "maps two draft ids to one" : `leads to id ${outside} of ${target.vocabSize}`;
    throw new DrafterError(dir, "vocabulary-map", `d2t ${what}: ids could not be mapped`);
  }
  return new DraftVocabulary(draftVocab, weights.own(() => [uint32Array(ids)])[0] ?? NONE, target.vocabSize);
}

/** What log-SNR conditioning adds to the embedded slots, [block, H]: a constant, so that its network runs once. */
function slotOffsets(block: number, weights: DrafterWeights): MlxArray {
  const [offsets = NONE] = weights.own((read) => {
    const linear = (x: MlxArray, path: string) =>
      addmm(read(`${path}.bias`), x, swapaxes(read(`${path}.weight`), 0, 1));
    const features = float32Array(logSnrFeatures(block), [block, SNR_FEATURES]);
    const inner = linear(astype(features, dtypeOf(read("log_snr_embed.fc1.bias"))), "log_snr_embed.fc1");
    return [linear(activate(inner, "silu"), "log_snr_embed.fc2")];
  });
  return offsets;
}

function buildDFlash(settings: DFlashSettings, material: HeadMaterial): BlockHead {
  const { weights, target, compute } = material;
  const { selector, vocab, embedScale, outputMultiplier, softcap } = settings;
  const vocabulary = new DraftVocabulary(vocab, null, target.vocabSize);
  const ends: DFlashEnds = { target, vocabulary, embedScale, outputMultiplier, softcap };
  if (selector === null) return new DFlashHead(ends);
  return new DFlash2Head(
    ends,
    new Selector({
      predecessors: weights.array("candidate_selector.predecessor_codebook", "float32"),
      successors: weights.array("candidate_selector.successor_codebook", "float32"),
      projection: compute.linear(weights.linear(["candidate_selector.hidden_projection"], false, false)),
      topK: selector.topK,
      targetVocab: target.vocabSize,
    }),
  );
}
