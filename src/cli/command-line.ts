/**
 * From argv to values by a command's declarations. Strict where citty is not: an unknown flag, a missing value and a
 * stray word are errors (cli.md §1), unless the command starts another program and passes them on.
 */
import type { ArgsDef } from "citty";
import { usageError } from "./errors.ts";
import type { Flag, Flags, FlagValues } from "./flags.ts";
import { nearest } from "./nearest.ts";

/** A word without a name, by its place. */
export interface Word {
  readonly name: string;
  readonly help: string;
  readonly choices?: readonly string[];
}

/** What of a command line is not flags. */
export interface LineShape {
  /** All of them must be there. */
  readonly words?: readonly Word[];
  /** `rest`: what stands behind `--` is passed on; `unknown`: so is every word that is not ours. */
  readonly passes?: "rest" | "unknown";
}

export interface CommandLine<F> {
  readonly flags: FlagValues<F>;
  readonly words: readonly string[];
  /** For the program that the command starts, in their order. */
  readonly passed: readonly string[];
}

/** Throws a usage error (exit 2). */
export function parseLine<F extends Flags>(argv: readonly string[], flags: F, shape: LineShape = {}): CommandLine<F> {
  const { words: wanted = [], passes } = shape;
  const values = new Map<string, unknown>(Object.entries(flags).map(([name, flag]) => [name, flag.initial]));
  const words: string[] = [];
  const passed: string[] = [];
  const set = (name: string, flag: Flag<unknown>, text: string) => {
    const value = flag.read(text, name);
    const earlier = values.get(name);
    const joined = flag.repeatable === true && Array.isArray(earlier) && Array.isArray(value);
    values.set(name, joined ? [...earlier, ...value] : value);
  };
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i] ?? "";
    if (word === "--" && passes !== undefined) {
      passed.push(...argv.slice(i + 1));
      break;
    }
    if (!word.startsWith("-") && words.length < wanted.length) {
      words.push(checkedWord(word, wanted[words.length]));
      continue;
    }
    const given = flagOf(word, flags);
    if (given === null) {
      if (passes !== "unknown") throw usageError(strayWord(word, flags));
      passed.push(word);
    } else if (given.text !== null) {
      set(given.name, given.flag, given.text);
    } else {
      const next = argv[i + 1];
      if (next === undefined || next === "--" || isFlagWord(next, flags)) {
        throw usageError(`--${given.name} needs a value`);
      }
      set(given.name, given.flag, next);
      i += 1;
    }
  }
  const missing = wanted[words.length];
  if (missing !== undefined) throw usageError(`${missing.name} is missing: ${missing.help}`);
  // Every key was filled from the declarations above, with its own reader's type.
  return { flags: Object.fromEntries(values) as FlagValues<F>, words, passed };
}

interface GivenFlag {
  readonly name: string;
  readonly flag: Flag<unknown>;
  /** null: the value is the next word. */
  readonly text: string | null;
}

/** The declared flag that a word names; null: none. */
function flagOf(word: string, flags: Flags): GivenFlag | null {
  if (!word.startsWith("--") || word === "--") return null;
  const [name = "", ...valueParts] = word.slice(2).split("=");
  const inline = valueParts.length > 0 ? valueParts.join("=") : null;
  const flag = own(flags, name);
  if (flag !== undefined) return { name, flag, text: inline ?? (flag.kind === "switch" ? "true" : null) };
  const negated = name.startsWith("no-") ? own(flags, name.slice(3)) : undefined;
  if (negated?.kind !== "switch" || inline !== null) return null;
  return { name: name.slice(3), flag: negated, text: "false" };
}

function own(flags: Flags, name: string): Flag<unknown> | undefined {
  return Object.hasOwn(flags, name) ? flags[name] : undefined;
}

/** A known flag is never taken for a value; other words with dashes (`-`, `-1`, `--x`) may be. */
function isFlagWord(word: string, flags: Flags): boolean {
  if (!word.startsWith("--")) return false;
  const name = word.slice(2).split("=", 1)[0] ?? "";
  return own(flags, name) !== undefined || own(flags, name.replace(/^no-/, "")) !== undefined;
}

function checkedWord(word: string, { name, choices }: Word = { name: "", help: "" }): string {
  if (choices === undefined || choices.includes(word)) return word;
  const similar = nearest(word, choices);
  const hint = similar === null ? `one of ${choices.join(", ")}` : `did you mean ${similar}?`;
  throw usageError(`${name} '${word}' is unknown: ${hint}`);
}

function unknownFlag(name: string, flags: Flags): string {
  const visible = Object.keys(flags).filter((known) => flags[known]?.hidden !== true);
  const similar = nearest(name, visible);
  return `unknown flag --${name}${similar === null ? "" : `; did you mean --${similar}?`}`;
}

function strayWord(word: string, flags: Flags): string {
  if (word === "-" || word === "--" || !word.startsWith("-")) return `unexpected argument '${word}'`;
  return unknownFlag(word.replace(/^-+/, "").split("=", 1)[0] ?? "", flags);
}

/** The declarations in citty's terms, for its help page. */
export function cittyArgs(flags: Flags, { words = [] }: LineShape): ArgsDef {
  const visible = Object.entries(flags).filter(([, flag]) => flag.hidden !== true);
  return {
    ...Object.fromEntries(words.map(({ name, help }) => [name, { type: "positional", description: help }] as const)),
    ...Object.fromEntries(visible.map(([name, flag]) => [name, cittyArg(flag)])),
  };
}

function cittyArg(flag: Flag<unknown>): ArgsDef[string] {
  if (flag.kind === "switch") {
    return { type: "boolean", description: flag.help, ...(flag.initial === true && { default: true }) };
  }
  const shown =
    flag.defaultText ??
    (typeof flag.initial === "number" || typeof flag.initial === "string" ? String(flag.initial) : null);
  return {
    type: "string",
    description: flag.help,
    ...(flag.hint !== undefined && { valueHint: flag.hint }),
    ...(shown !== null && { default: shown }),
  };
}
