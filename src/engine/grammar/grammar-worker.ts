/**
 * The grammar worker's loop. It waits on the shared block's bell, never on an event loop: a call is answered within
 * microseconds. Between two compiles, which are done one at a time, calls come first.
 */
import { receiveMessageOnPort, workerData } from "node:worker_threads";
import { GrammarHost } from "./host.ts";
import type { FromGrammarWorker, GrammarSource, GrammarWorkerSetup, ToGrammarWorker } from "./messages.ts";
import { type GrammarCall, OP_FORCED, ROWS_MAX, SharedBlock } from "./shared-block.ts";

const { port, memory, dir, vocabSize } = workerData as GrammarWorkerSetup;
const shared = new SharedBlock(memory, Math.ceil(vocabSize / 32));
const post = (message: FromGrammarWorker) => port.postMessage(message);

/** The reason of a WASM abort goes to the console only, as `[FATAL] file:line: why`. */
let reason = "";
console.error = (...words: unknown[]) => {
  const line = words.map(String).join(" ");
  reason = /\[FATAL\] .*?:\d+: (.+)/.exec(line)?.[1] ?? reason;
};
console.log = console.error;

interface CompileJob {
  readonly key: string;
  readonly source: GrammarSource;
}

class GrammarLoop {
  private readonly jobs: CompileJob[] = [];
  private stopped = false;

  constructor(private readonly host: GrammarHost) {}

  async run(): Promise<void> {
    let seen = -1;
    while (!this.stopped) {
      if (this.jobs.length === 0) seen = shared.waitForBell(seen);
      await this.drain();
      const call = shared.pendingCall();
      if (call !== null) await this.serve(call);
      else await this.compileNext();
    }
  }

  /** Messages are small but for compiles, which wait their turn. */
  private async drain(): Promise<void> {
    for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port)) {
      const message = next.message as ToGrammarWorker;
      switch (message.type) {
        case "compile":
          this.jobs.push(message);
          break;
        case "open":
          await this.host.open(message.opening);
          break;
        case "restore":
          for (const { key, source } of message.grammars) await this.host.compile(key, source);
          for (const opening of message.rows) await this.host.open(opening);
          break;
        case "close":
          this.host.close(message.row);
          break;
        case "drop":
          this.host.drop(message.key);
          break;
        case "stop":
          this.stopped = true;
      }
    }
  }

  private async serve({ op, row, commits, draft, from }: GrammarCall): Promise<void> {
    const matcher = this.host.matcher(row);
    matcher.commit(commits);
    if (op === OP_FORCED) {
      shared.answer(shared.writeForced(this.host.forced(row)));
    } else {
      const kept = matcher.legal(draft);
      shared.answer(kept);
      const rows = Math.min(kept + 1 - from, ROWS_MAX);
      await matcher.masks(draft.slice(0, kept), from, (index) => shared.maskRow(index), rows);
    }
    shared.finish();
  }

  private async compileNext(): Promise<void> {
    const job = this.jobs.shift();
    if (job === undefined) return;
    post({ type: "begun", key: job.key });
    const started = performance.now();
    shared.markCompiling(true);
    try {
      await this.host.compile(job.key, job.source);
    } catch (error) {
      shared.markLost();
      post({ type: "refused", key: job.key, reason: reasonOf(error) });
      this.stopped = true;
      return;
    }
    shared.markCompiling(false);
    post({ type: "compiled", key: job.key, ms: performance.now() - started });
  }
}

function reasonOf(error: unknown): string {
  return reason === "" ? (error instanceof Error ? error.message : String(error)) : reason;
}

try {
  const host = await GrammarHost.create(dir, vocabSize);
  shared.markReady();
  await new GrammarLoop(host).run();
} catch (error) {
  shared.markLost();
  post({ type: "lost", reason: reasonOf(error) });
}
port.close();
