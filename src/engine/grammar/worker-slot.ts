/**
 * One grammar worker as the engine thread sees it: started with its shared block, ended and started anew when its
 * instance is lost. Ending it needs no answer, so it works while the worker computes or is gone.
 */
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import { grammarWorkerUrl } from "../worker-url.ts";
import type { FromGrammarWorker, GrammarWorkerSetup, ToGrammarWorker } from "./messages.ts";
import { SharedBlock } from "./shared-block.ts";

export interface SlotOptions {
  /** Folder of the model's tokenizer. */
  readonly dir: string;
  /** Rows of the model's head that are tokens. */
  readonly vocabSize: number;
  /** Sees each thread that is started; for tests. */
  readonly onWorker?: (worker: Worker) => void;
}

export class WorkerSlot {
  readonly shared: SharedBlock;
  private readonly worker: Worker;
  private readonly port: MessagePort;

  constructor(options: SlotOptions, onMessage: (message: FromGrammarWorker) => void) {
    this.shared = SharedBlock.allocate(Math.ceil(options.vocabSize / 32));
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    port1.on("message", onMessage);
    const { dir, vocabSize } = options;
    const setup: GrammarWorkerSetup = { port: port2, memory: this.shared.memory, dir, vocabSize };
    this.worker = new Worker(grammarWorkerUrl(), { workerData: setup, transferList: [port2] });
    this.worker.on("error", (error) => {
      this.shared.markLost();
      onMessage({ type: "lost", reason: error instanceof Error ? error.message : String(error) });
    });
    // An idle grammar engine keeps no process alive.
    this.worker.unref();
    options.onWorker?.(this.worker);
    port1.unref();
  }

  send(message: ToGrammarWorker): void {
    this.port.postMessage(message);
    this.shared.ring();
  }

  /** Messages that have come, without the event loop. */
  received(): FromGrammarWorker[] {
    const messages: FromGrammarWorker[] = [];
    for (let next = receiveMessageOnPort(this.port); next !== undefined; next = receiveMessageOnPort(this.port)) {
      messages.push(next.message as FromGrammarWorker);
    }
    return messages;
  }

  /** While somebody waits for a compile, the process stays. */
  hold(waits: boolean): void {
    if (waits) this.port.ref();
    else this.port.unref();
  }

  end(): void {
    this.port.close();
    void this.worker.terminate();
  }
}
