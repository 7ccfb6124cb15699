/** config.json as Python writes it, typed reads that name file and key, and the EOS rules. */
import { describe, expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { eosTokenIds, parseConfigText, readModelConfig } from "../../src/checkpoint/config-json.ts";
import { CheckpointError } from "../../src/checkpoint/errors.ts";
import { put, temporaryFolder } from "./temporary-folder.ts";

const root = temporaryFolder();
const parse = (text: string) => parseConfigText(text, "config.json");

test("non-finite floats, bare or wrapped, at any depth", () => {
  const config = parse(
    '{"a": Infinity, "b": [{"__float__": "-Infinity"}], "c": {"d": {"__float__": "NaN"}}, "e": {"__float__": "x"}}',
  );
  expect(config.number("a")).toBe(Infinity);
  expect(config.numbers("b")).toEqual([-Infinity]);
  expect(config.section("c")?.number("d")).toBeNaN();
  expect(config.section("e")?.string("__float__")).toBe("x");
});

describe("typed reads", () => {
  const config = parse(
    '{"n": 3, "f": 0.5, "z": 0, "s": "x", "t": false, "nil": null, "list": [1, "2"], "in": {"n": "no"}}',
  );

  test("values, zero, false and fallbacks", () => {
    expect(config.int("n")).toBe(3);
    expect(config.int("z", 7)).toBe(0);
    expect(config.bool("t", true)).toBe(false);
    expect(config.int("nil", 9)).toBe(9);
    expect(config.string("absent", null)).toBeNull();
    expect(config.has("nil")).toBe(false);
    expect(config.section("nil")).toBeNull();
    expect(config.has("toString")).toBe(false);
  });

  test.each([
    ["missing", () => config.int("absent"), /key absent: is required \(an integer\)/],
    ["null", () => config.int("nil"), /key nil: is required/],
    ["fraction", () => config.int("f"), /key f: must be an integer, found 0.5/],
    ["zero size", () => config.size("z"), /positive integer/],
    ["string", () => config.number("s"), /found "x"/],
    ["mixed list", () => config.numbers("list"), /list of numbers/],
    ["not an object", () => config.section("n"), /must be an object/],
    ["nested key", () => config.section("in")?.int("n"), /key in\.n: must be an integer/],
  ])("%s", (_label, read, message) => {
    expect(read).toThrow(CheckpointError);
    expect(read).toThrow(message);
  });
});

describe("EOS ids", () => {
  const eos = (config: string, generation: string | null) =>
    eosTokenIds(parse(config), generation === null ? null : parse(generation));

  test.each([
    ["config alone", '{"eos_token_id": 2}', null, [2]],
    ["generation replaces", '{"eos_token_id": 2}', '{"eos_token_id": [5, 6, 5]}', [5, 6]],
    ["falsy ones do not replace", '{"eos_token_id": 2}', '{"eos_token_id": 0}', [2]],
    ["nor empty lists", '{"eos_token_id": 2}', '{"eos_token_id": []}', [2]],
    ["zero in the config counts", '{"eos_token_id": 0}', null, [0]],
    ["text_config", '{"text_config": {"eos_token_id": [7]}}', null, [7]],
    ["none", "{}", "{}", []],
  ])("%s", (_label, config, generation, expected) => {
    expect(eos(config, generation)).toEqual(expected);
  });

  test("anything else is refused", () => {
    expect(() => eos('{"eos_token_id": "x"}', null)).toThrow(/eos_token_id/);
    expect(() => eos('{"eos_token_id": [-1]}', null)).toThrow(/eos_token_id/);
  });
});

test("a folder: config required, a malformed generation config ignored with a note", () => {
  const dir = path.join(root, "m");
  mkdirSync(dir);
  expect(() => readModelConfig(dir)).toThrow(/config\.json/);
  put(dir, "config.json", '{"eos_token_id": 1}');
  put(dir, "generation_config.json", "{oops");
  const { generation, eosIds, notes } = readModelConfig(dir);
  expect(generation).toBeNull();
  expect(eosIds).toEqual([1]);
  expect(notes[0]).toContain("generation_config.json");
  put(dir, "config.json", "[]");
  expect(() => readModelConfig(dir)).toThrow(/not a JSON object/);
});
