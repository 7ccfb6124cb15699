/** What callers wrote as JSON stands in the prompt as they wrote it: numbers with their digits, members in their order. */
import { expect, test } from "bun:test";
import { templateServer } from "./anthropic/template-server.ts";

const SCHEMA =
  '{"type":"object","properties":{"10":{"type":"number","minimum":1.0},"2":{"type":"integer","maximum":12345678901234567890}}}';
const INPUT = '{"b":1.0,"7":7,"3":1e3}';
/** As the template prints it: Python's JSON, whose floats are written the shortest way. */
const PRINTED_SCHEMA = SCHEMA.replaceAll(":", ": ").replaceAll(",", ", ");
const PRINTED_INPUT = '{"b": 1.0, "7": 7, "3": 1000.0}';
const TOOL = `"name":"f","description":"d"`;

const BODIES: readonly (readonly [string, string])[] = [
  [
    "/v1/messages",
    `{"max_tokens":4,"tools":[{${TOOL},"input_schema":${SCHEMA}}],"messages":[{"role":"user","content":"a"},` +
      `{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":${INPUT}}]},` +
      '{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}]}',
  ],
  [
    "/v1/chat/completions",
    `{"max_tokens":4,"tools":[{"type":"function","function":{${TOOL},"parameters":${SCHEMA}}}],"messages":[` +
      `{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"t","function":{"name":"f","arguments":${INPUT}}}]},` +
      '{"role":"tool","tool_call_id":"t","content":"r"}]}',
  ],
  [
    "/v1/responses",
    `{"max_output_tokens":4,"tools":[{"type":"function",${TOOL},"parameters":${SCHEMA}}],"input":[{"role":"user","content":"a"},` +
      `{"type":"function_call","call_id":"t","name":"f","arguments":${JSON.stringify(INPUT)}},` +
      '{"type":"function_call_output","call_id":"t","output":"r"}]}',
  ],
];

test.each(BODIES)("%s", async (path, body) => {
  await using server = templateServer(["ok"]);
  const reply = await fetch(server.url + path, { method: "POST", body });
  expect(reply.status).toBe(200);
  const prompt = server.promptOf(0);
  expect(prompt).toContain(PRINTED_SCHEMA);
  expect(prompt).toContain(PRINTED_INPUT);
});

test("an input of Messages keeps more digits than a double has", async () => {
  await using server = templateServer(["ok"]);
  const body = BODIES[0]?.[1].replace('"7":7', '"7":90071992547409931') ?? "";
  await fetch(`${server.url}/v1/messages`, { method: "POST", body });
  expect(server.promptOf(0)).toContain('"7": 90071992547409931');
});

test("a response tells its tools with every digit", async () => {
  await using server = templateServer(["ok"]);
  const body = `{"input":"a","tools":[{"type":"function",${TOOL},"parameters":${SCHEMA}}]}`;
  const text = await (await fetch(`${server.url}/v1/responses`, { method: "POST", body })).text();
  expect(text).toContain('"maximum":12345678901234567890');
  expect(text).toContain('"minimum":1.0');
});

test("limits on schemas count members whatever their names look like", async () => {
  await using server = templateServer(["ok"]);
  const properties = Array.from({ length: 2001 }, (_, i) => `"${i}":{}`).join(",");
  const schema = `{"type":"object","properties":{${properties}}}`;
  const format = `{"type":"json_schema","json_schema":{"name":"n","schema":${schema}}}`;
  const body = `{"messages":[{"role":"user","content":"a"}],"response_format":${format}}`;
  const reply = await fetch(`${server.url}/v1/chat/completions`, { method: "POST", body });
  expect(reply.status).toBe(400);
  expect(await reply.text()).toContain("schema too large: properties 2001 > 2000");
});
