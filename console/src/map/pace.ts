/**
 * How often the map is drawn by itself. Without a graphics card a draw takes so long that the rest of
 * the page would wait for it most of the time. Without I/O and without a clock; times are ms.
 */

/** What a draw takes at most without costing the page a frame of its own. */
const FREE_MS = 8;
/** Between two draws is so many times what one takes beyond that, */
const REST = 15;
/** but no more than this, so that a fix is seen while it is news. */
const LONGEST_MS = 600;
/** The part of a new measurement in what is expected of the next draw. */
const GAIN = 0.3;

export class Pace {
  private costMs = 0;

  /** Takes in how long a draw took, until the graphics card was done with it. */
  took(ms: number): void {
    this.costMs += GAIN * (ms - this.costMs);
  }

  /** How long the map rests between the end of a draw and the next one, at least. */
  get restMs(): number {
    return Math.min(LONGEST_MS, REST * Math.max(0, this.costMs - FREE_MS));
  }
}
