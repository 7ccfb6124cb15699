/**
 * Whether requests may use the loaded model. Each holds a pass from its first look at the model to its end; a model is
 * changed while the gate is closed and, unless it is forced, when the last pass has been given back.
 */
import { notReady } from "../errors.ts";

export class Gate {
  private closedBecause: string | null = null;
  private held = 0;
  private waiting: (() => void)[] = [];

  /** Throws 503 with the reason while the gate is closed. */
  enter(): Disposable {
    if (this.closedBecause !== null) throw notReady(this.closedBecause);
    this.held += 1;
    let open = true;
    return {
      [Symbol.dispose]: () => {
        if (!open) return;
        open = false;
        this.held -= 1;
        if (this.held === 0) for (const resolve of this.waiting.splice(0)) resolve();
      },
    };
  }

  close(reason: string): void {
    this.closedBecause = reason;
  }

  open(): void {
    this.closedBecause = null;
  }

  /** Resolves when no pass is out. */
  async empty(): Promise<void> {
    if (this.held > 0) await new Promise<void>((resolve) => this.waiting.push(resolve));
  }
}
