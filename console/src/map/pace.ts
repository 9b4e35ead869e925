/**
 * How often the map is drawn by itself. Without a graphics card a draw takes so long that the rest of
 * the page would wait for it most of the time. Without I/O and without a clock; times are ms.
 */

/** The longest draw that does not cost the page a frame. */
const FREE_MS = 8;
/** A longer draw costs the page its own duration and the frame in which it is shown; */
const FRAME_MS = 1000 / 60;
/** a draw that is only a little longer costs some of the frames. */
const STEEPNESS = 4;
/** The pause between two draws is this many times the cost of one, */
const REST = 15;
/** but no more than this, so that new fixes show soon. */
const LONGEST_MS = 600;
/** The weight of a new measurement in the expected time of the next draw. */
const GAIN = 0.3;

export class Pace {
  private costMs = 0;

  /** Takes in how long a draw took, until the graphics card was done with it. */
  took(ms: number): void {
    this.costMs += GAIN * (ms - this.costMs);
  }

  /** The least pause between the end of a draw and the next one. */
  get restMs(): number {
    const lostMs = Math.min(this.costMs + FRAME_MS, STEEPNESS * Math.max(0, this.costMs - FREE_MS));
    return Math.min(LONGEST_MS, REST * lostMs);
  }
}
