/** The executable: argv in, exit code out. Everything written leaves the process before it ends. */
import { flushed, processIo } from "./cli/process-io.ts";
import { runCli } from "./cli/run.ts";

const exitCode = await runCli(process.argv.slice(2), processIo());
await flushed();
process.exit(exitCode);
