/**
 * How often the map is drawn by itself: what moves on it is worth a part of the time, not all of it.
 * Without I/O and without a clock; times are ms.
 */

/** Between two draws is so many times what one takes, */
const REST = 12;
/** but no more than this, so that a fix is seen while it is news. */
const LONGEST_MS = 500;
/** The part of a new measurement in what is expected of the next draw. */
const GAIN = 0.3;

export class Pace {
  private costMs = 0;

  /** Takes in how long a draw took, until the graphics card was done with it. */
  took(ms: number): void {
    this.costMs += GAIN * (ms - this.costMs);
  }

  /** How long after a draw the next one begins at the earliest. */
  get restMs(): number {
    return Math.min(LONGEST_MS, REST * this.costMs);
  }
}
