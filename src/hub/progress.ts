/**
 * Counts the bytes of a download and reports them twice a second. Bytes that were there before (`resumed_bytes`) are
 * part of `bytes_done` but not of the rate, which is a mean whose weights fade with a time constant of 5 s.
 */

const TICK_MS = 500;
const MEAN_SECONDS = 5;

/** Field names are those of `/health` and the events stream. */
export interface DownloadProgress {
  readonly repo: string;
  /** The file that got the last bytes. */
  readonly file: string;
  readonly files_done: number;
  readonly files_total: number;
  readonly bytes_done: number;
  readonly bytes_total: number;
  readonly bytes_per_s: number;
  /** Seconds to the end at this rate; null while the rate is unknown. */
  readonly eta_s: number | null;
  readonly resumed_bytes: number;
}

export class ProgressMeter {
  readonly #repo: string;
  readonly #report: (progress: DownloadProgress) => void;
  readonly #timer: ReturnType<typeof setInterval>;
  #file = "";
  #filesDone = 0;
  #filesTotal = 0;
  #bytesTotal = 0;
  #resumed = 0;
  #received = 0;
  #fadedBytes = 0;
  #fadedSeconds = 0;
  #lastReceived = 0;
  #lastAt = performance.now();

  constructor(repo: string, report: (progress: DownloadProgress) => void) {
    this.#repo = repo;
    this.#report = report;
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
  }

  plan(filesTotal: number, bytesTotal: number): void {
    this.#filesTotal = filesTotal;
    this.#bytesTotal = bytesTotal;
  }

  resumed(bytes: number): void {
    this.#resumed += bytes;
  }

  received(file: string, bytes: number): void {
    this.#file = file;
    this.#received += bytes;
  }

  /** Takes back bytes that have to be fetched again. */
  lost(resumed: number, received: number): void {
    this.#resumed -= resumed;
    this.#received -= received;
  }

  fileDone(file: string): void {
    this.#file = file;
    this.#filesDone++;
  }

  /** Last report, and no more. */
  stop(): void {
    clearInterval(this.#timer);
    this.#report(this.snapshot());
  }

  snapshot(): DownloadProgress {
    const done = this.#resumed + this.#received;
    const rate = this.#fadedSeconds === 0 ? 0 : this.#fadedBytes / this.#fadedSeconds;
    return {
      repo: this.#repo,
      file: this.#file,
      files_done: this.#filesDone,
      files_total: this.#filesTotal,
      bytes_done: done,
      bytes_total: this.#bytesTotal,
      bytes_per_s: Math.round(rate),
      eta_s: rate > 0 ? Math.round(Math.max(0, this.#bytesTotal - done) / rate) : null,
      resumed_bytes: this.#resumed,
    };
  }

  #tick(): void {
    const now = performance.now();
    const seconds = (now - this.#lastAt) / 1000;
    const fade = Math.exp(-seconds / MEAN_SECONDS);
    this.#fadedBytes = this.#fadedBytes * fade + Math.max(0, this.#received - this.#lastReceived);
    this.#fadedSeconds = this.#fadedSeconds * fade + seconds;
    this.#lastAt = now;
    this.#lastReceived = this.#received;
    this.#report(this.snapshot());
  }
}
