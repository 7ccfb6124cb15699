/**
 * The models known by a short id: what `mlx-dspark models` lists first and what a bare name like `qwen3-8b` means.
 * A row is added together with its family in `src/models/`; the order is the one shown to people. The first row is part
 * of the program itself. RAM figures are rough needs with drafter and a usual context, in GB.
 */

export interface RegistryRow {
  readonly id: string;
  /** Hugging Face repository of the target. */
  readonly repo: string;
  readonly ramGb: number;
  /** Target and drafter are shipped with the program: no download is needed. */
  readonly embedded: boolean;
  /** Repositories of drafters for any quantization of this target; null: none published. */
  readonly dspark: string | null;
  readonly dflash: string | null;
}

function row(id: string, repo: string, ramGb: number, dspark: string | null, dflash: string | null): RegistryRow {
  return { id, repo, ramGb, embedded: false, dspark, dflash };
}

export const REGISTRY: readonly RegistryRow[] = [
  {
    id: "smollm2-135m",
    repo: "HuggingFaceTB/SmolLM2-135M-Instruct",
    ramGb: 1,
    embedded: true,
    dspark: null,
    dflash: null,
  },
  row("qwen3-4b", "mlx-community/Qwen3-4B-8bit", 8, "deepseek-ai/dspark_qwen3_4b_block7", "z-lab/Qwen3-4B-DFlash-b16"),
  row("qwen3-8b", "mlx-community/Qwen3-8B-8bit", 11, "deepseek-ai/dspark_qwen3_8b_block7", "z-lab/Qwen3-8B-DFlash-b16"),
  row("qwen3-14b", "mlx-community/Qwen3-14B-8bit", 19, "deepseek-ai/dspark_qwen3_14b_block7", null),
  row("minicpm5-2b", "mlx-community/MiniCPM5-2B-bf16", 6, "openbmb/MiniCPM5-2B-DSpark", null),
];

/** The row with exactly this id, in any case. */
export function registryRow(id: string): RegistryRow | null {
  const wanted = id.toLowerCase();
  return REGISTRY.find((entry) => entry.id === wanted) ?? null;
}

/**
 * The row that describes a model given by repository, folder or file: its id is part of the lower-cased last path
 * part, dashes ignored on a second look; the longest id wins, so that a size or quantization is not lost.
 */
export function registryRowFor(nameOrPath: string): RegistryRow | null {
  const base = (nameOrPath.split(/[/\\]/).findLast((part) => part !== "") ?? "").toLowerCase();
  const squeezed = base.replaceAll("-", "");
  const byLength = [...REGISTRY].sort((a, b) => b.id.length - a.id.length);
  return byLength.find(({ id }) => base.includes(id) || squeezed.includes(id.replaceAll("-", ""))) ?? null;
}
