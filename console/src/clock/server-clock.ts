/**
 * The service's time of day, from its answers: the browser's clock may be hours off.
 *
 * Each answer bounds the difference between the service's clock and a monotonic one here: the
 * service's time stamp lies between the request's start and the answer's end. The bounds are
 * intersected (Marzullo and Owicki, "Maintaining the time in a distributed system", 1983). If bounds
 * contradict each other, a clock has been set or this machine has slept: then the newest ones count.
 */
export class ServerClock {
  private low = -Infinity;
  private high = Infinity;

  /** Takes a time stamp of `resolutionMs` from an answer, with the times of request and answer. */
  observe(stampMs: number, resolutionMs: number, askedAt: number, cameAt: number): void {
    const low = stampMs - cameAt;
    const high = stampMs + resolutionMs - askedAt;
    if (!Number.isFinite(low) || low > high) return;
    if (low > this.high || high < this.low) {
      this.low = low;
      this.high = high;
      return;
    }
    this.low = Math.max(this.low, low);
    this.high = Math.min(this.high, high);
  }

  /** Takes a time stamp that the service made before it came here. */
  observePast(stampMs: number, cameAt: number): void {
    const low = stampMs - cameAt;
    if (!Number.isFinite(low) || low <= this.low) return;
    // A stamp beyond the upper bound is a contradiction that only an answer can resolve.
    this.low = Math.min(low, this.high);
  }

  /** Whether anything is known. */
  get known(): boolean {
    return this.high - this.low < Infinity;
  }

  /** How far off `now` may be, ms. */
  get uncertaintyMs(): number {
    return (this.high - this.low) / 2;
  }

  /** The service's time, ms since the Unix epoch, at a time of the monotonic clock. */
  at(monotonicMs: number): number {
    return monotonicMs + (this.low + this.high) / 2;
  }
}
