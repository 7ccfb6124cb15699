/** Converts one file in a process of its own: `convert-child.ts FILE FOLDER`. */
import { convertGguf } from "../../../src/hub/gguf/convert-gguf.ts";

const [file, dir] = process.argv.slice(2);
if (file === undefined || dir === undefined) throw new Error("usage: convert-child.ts FILE FOLDER");
await convertGguf(file, dir);
