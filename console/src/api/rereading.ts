/**
 * Reads something again when it has changed: one read at a time, and one for changes that come
 * together. So an older answer never follows a newer one, and a thousand events cost a few requests.
 */

const PAUSE_MS = 500;

export class Rereading {
  private readonly ended = new AbortController();
  private isRunning = false;
  private due = false;
  private begun = 0;
  /** The callers that wait for the end of a read, by its number. */
  private waiting: { read: number; done: () => void }[] = [];

  constructor(
    private readonly read: (signal: AbortSignal) => Promise<void>,
    private readonly failed: (error: unknown) => void,
    private readonly pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms)),
  ) {}

  /** Reads after a moment, in which more may change. */
  soon(): void {
    this.due = true;
    if (!this.isRunning) void this.run(true);
  }

  /** Reads; resolves at the end of a read that has begun after this. */
  now(): Promise<void> {
    const next = this.begun + 1;
    this.due = true;
    if (!this.isRunning) void this.run(false);
    return new Promise((done) => {
      if (this.ended.signal.aborted) done();
      else this.waiting.push({ read: next, done });
    });
  }

  close(): void {
    this.ended.abort();
    this.tell(Infinity);
  }

  private async run(later: boolean): Promise<void> {
    const { signal } = this.ended;
    this.isRunning = true;
    if (later) await this.pause(PAUSE_MS);
    while (this.due && !signal.aborted) {
      this.due = false;
      this.begun += 1;
      try {
        await this.read(signal);
      } catch (error) {
        if (!signal.aborted) this.failed(error);
      }
      this.tell(this.begun);
      if (this.due) await this.pause(PAUSE_MS);
    }
    this.isRunning = false;
  }

  private tell(read: number): void {
    const done = this.waiting.filter((one) => one.read <= read);
    this.waiting = this.waiting.filter((one) => one.read > read);
    done.forEach((one) => one.done());
  }
}
