/** A process of its own for `unpack.test.ts`: unpacks what a JSON file describes, and prints "done". */
import { readFileSync } from "node:fs";
import type { EmbeddedFile } from "../../../src/engine/embedded/manifest.ts";
import { unpackInto } from "../../../src/engine/embedded/unpack.ts";

const [folder, description] = process.argv.slice(2);
if (folder === undefined || description === undefined) throw new Error("usage: unpack-child.ts FOLDER FILES.json");
unpackInto(folder, JSON.parse(readFileSync(description, "utf8")) as EmbeddedFile[]);
console.log("done");
