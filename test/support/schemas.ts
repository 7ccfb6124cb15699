/** Schemas as clients send them, what of the engine's border they become, and a judge that shares nothing with that. */
import Ajv2020 from "ajv/dist/2020.js";
import type { ConstraintSpec } from "../../src/decoding/constraint.ts";
import { schemaGrammar } from "../../src/text/grammar/json-grammar.ts";

export const SCHEMAS: Readonly<Record<string, object>> = {
  person: {
    type: "object",
    properties: {
      name: { type: "string", maxLength: 40 },
      age: { type: "integer", minimum: 0, maximum: 120 },
      email: { type: "string", pattern: "^[a-z]{2,12}@[a-z]{2,12}\\.(com|org)$" },
    },
    required: ["name", "age", "email"],
    additionalProperties: false,
  },
  verdict: {
    type: "object",
    properties: {
      label: { enum: ["positive", "negative", "neutral"] },
      score: { type: "number", minimum: 0, maximum: 1 },
      certain: { type: "boolean" },
    },
    required: ["label", "score", "certain"],
    additionalProperties: false,
  },
  list: {
    type: "object",
    properties: {
      title: { type: "string", minLength: 3, maxLength: 30 },
      items: { type: "array", items: { type: "string", maxLength: 25 }, minItems: 2, maxItems: 4 },
    },
    required: ["title", "items"],
    additionalProperties: false,
  },
  nested: {
    type: "object",
    properties: {
      place: {
        type: "object",
        properties: { city: { type: "string", maxLength: 20 }, zip: { type: ["string", "null"], maxLength: 10 } },
        required: ["city"],
        additionalProperties: false,
      },
      tags: { type: "array", items: { enum: ["home", "work", "other"] }, maxItems: 3 },
      since: { type: "string", format: "date" },
    },
    required: ["place", "tags"],
    additionalProperties: false,
  },
  choice: {
    anyOf: [
      {
        type: "object",
        properties: { answer: { type: "string", maxLength: 100 } },
        required: ["answer"],
        additionalProperties: false,
      },
      {
        type: "object",
        properties: { refusal: { const: true }, reason: { type: "string", maxLength: 30 } },
        required: ["refusal", "reason"],
        additionalProperties: false,
      },
    ],
  },
};

export function schemaSpec(schema: object): ConstraintSpec {
  const { rules, start, counters, relaxed } = schemaGrammar(schema, true);
  const ebnf = `${rules.text}root ::= ${start}\n`;
  return { kind: "json_schema", ebnf, markers: [], counters, start: { kind: "at_once" }, relaxed };
}

/** What is wrong with a text; "": nothing. */
export function complaint(schema: object, text: string): string {
  const validate = new Ajv2020({ strict: false, validateFormats: false }).compile(schema);
  try {
    return validate(JSON.parse(text)) ? "" : JSON.stringify(validate.errors);
  } catch (error) {
    return `${error instanceof Error ? error.message : String(error)}: ${text}`;
  }
}
