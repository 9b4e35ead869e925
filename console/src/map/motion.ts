/**
 * How vehicles move between fixes: each glides from where it is shown to its newest fix, in the time
 * between its last two fixes. So it starts on the next frame after a fix has come, and never jumps
 * back. Without I/O and without a clock; times are ms of one monotonic clock.
 *
 * The numbers lie in one array in the GPU's format; the GPU computes each vehicle's place in a frame.
 */

/** Numbers of each vehicle: two places with their remainders, two times, heading, colour, selected. */
export const STRIDE = 13;
// Offsets of these numbers; the remainder follows each coordinate.
const X0 = 0;
const Y0 = 2;
const X1 = 4;
const Y1 = 6;
const T0 = 8;
const T1 = 9;
const HEADING = 10;
const COLOUR = 11;
const SELECTED = 12;

/** A vehicle without a heading. */
const NO_HEADING = -1;
/** A vehicle jumps instead of gliding between fixes further apart than this: about 2 km at the equator. */
const LEAP = 5e-5;
const SHORTEST_MS = 200;
const LONGEST_MS = 3000;
const FIRST_CAPACITY = 64;

export interface Place {
  /** Web Mercator, 0 to 1, from west and from north. */
  x: number;
  y: number;
}

export class Motion {
  data = new Float32Array(FIRST_CAPACITY * STRIDE);
  /** The nodes of the vehicles, in the array's order. */
  readonly nodes: number[] = [];
  /** The vehicles changed since the last upload: index of the first, and index behind the last. */
  changed: [number, number] | undefined;
  private readonly places = new Map<number, number>();
  private readonly fixMs = new Map<number, number>();
  /** Times in the array are relative to this, so that 32 bits hold them. */
  private readonly epoch: number;

  constructor(now: number) {
    this.epoch = now;
  }

  get count(): number {
    return this.nodes.length;
  }

  has(node: number): boolean {
    return this.places.has(node);
  }

  /** Converts a time to the array's, s. */
  time(now: number): number {
    return (now - this.epoch) / 1000;
  }

  /** Takes in a fix: its place, heading in degrees, and its own time, ms. */
  fix(node: number, place: Place, heading: number | undefined, fixMs: number, now: number): void {
    const known = this.places.get(node);
    const before = this.fixMs.get(node);
    if (before !== undefined && fixMs <= before) return;
    const index = known ?? this.add(node);
    const from = known === undefined ? place : this.shown(index, now);
    const far = Math.hypot(place.x - from.x, place.y - from.y) > LEAP;
    const apart = before === undefined ? 0 : fixMs - before;
    const glideMs = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, apart));
    const at = index * STRIDE;
    this.put(at + X0, far ? place.x : from.x);
    this.put(at + Y0, far ? place.y : from.y);
    this.put(at + X1, place.x);
    this.put(at + Y1, place.y);
    this.data[at + T0] = this.time(now);
    this.data[at + T1] = this.time(now + glideMs);
    if (heading !== undefined) this.data[at + HEADING] = heading;
    this.fixMs.set(node, fixMs);
    this.touch(index);
  }

  /** Sets how a vehicle looks; costs nothing if that is as before. */
  look(node: number, colour: number, selected: boolean): void {
    const index = this.places.get(node);
    if (index === undefined) return;
    const at = index * STRIDE;
    const chosen = selected ? 1 : 0;
    if (this.data[at + COLOUR] === colour && this.data[at + SELECTED] === chosen) return;
    this.data[at + COLOUR] = colour;
    this.data[at + SELECTED] = chosen;
    this.touch(index);
  }

  /** Removes the vehicles that no longer exist. */
  keep(isThere: (node: number) => boolean): void {
    for (let index = this.count - 1; index >= 0; index--) {
      const node = this.nodes[index] as number;
      if (!isThere(node)) this.remove(node, index);
    }
  }

  /** Returns where a vehicle is shown at a time. */
  placeOf(node: number, now: number): Place | undefined {
    const index = this.places.get(node);
    return index === undefined ? undefined : this.shown(index, now);
  }

  /** Returns the fastest glide's speed at a time, in world widths per ms; 0 if all are at rest. */
  fastest(now: number): number {
    let most = 0;
    const time = this.time(now);
    for (let at = 0; at < this.count * STRIDE; at += STRIDE) {
      const until = this.number(at + T1);
      if (until <= time) continue;
      const x = this.number(at + X1) - this.number(at + X0) + this.number(at + X1 + 1) - this.number(at + X0 + 1);
      const y = this.number(at + Y1) - this.number(at + Y0) + this.number(at + Y1 + 1) - this.number(at + Y0 + 1);
      const seconds = until - this.number(at + T0);
      most = Math.max(most, (x * x + y * y) / (seconds * seconds));
    }
    return Math.sqrt(most) / 1000;
  }

  private shown(index: number, now: number): Place {
    const at = index * STRIDE;
    const [from, to] = [this.number(at + T0), this.number(at + T1)];
    const part = to > from ? Math.min(1, Math.max(0, (this.time(now) - from) / (to - from))) : 1;
    const along = (a: number, b: number) => {
      const [start, end] = [this.number(a) + this.number(a + 1), this.number(b) + this.number(b + 1)];
      return start + part * (end - start);
    };
    return { x: along(at + X0, at + X1), y: along(at + Y0, at + Y1) };
  }

  private add(node: number): number {
    const index = this.nodes.push(node) - 1;
    this.places.set(node, index);
    if (this.data.length < this.count * STRIDE) {
      const larger = new Float32Array(2 * this.data.length);
      larger.set(this.data);
      this.data = larger;
      this.changed = [0, this.count];
    }
    this.data[index * STRIDE + HEADING] = NO_HEADING;
    return index;
  }

  private remove(node: number, index: number): void {
    const last = this.count - 1;
    const moved = this.nodes[last] as number;
    this.data.copyWithin(index * STRIDE, last * STRIDE, (last + 1) * STRIDE);
    this.nodes[index] = moved;
    this.nodes.pop();
    this.places.set(moved, index);
    this.places.delete(node);
    this.fixMs.delete(node);
    if (index < this.count) this.touch(index);
  }

  /** Writes a number as two of 32 bits: one alone would be a metre or two off. */
  private put(at: number, value: number): void {
    const high = Math.fround(value);
    this.data[at] = high;
    this.data[at + 1] = value - high;
  }

  private number(at: number): number {
    return this.data[at] as number;
  }

  private touch(index: number): void {
    const [from, to] = this.changed ?? [index, index];
    this.changed = [Math.min(from, index), Math.max(to, index + 1)];
  }
}

/** Web Mercator (EPSG:3857), scaled to 0 to 1. */
export function mercator(longitude: number, latitude: number): Place {
  const sine = Math.sin((Math.min(85.05, Math.max(-85.05, latitude)) * Math.PI) / 180);
  return { x: longitude / 360 + 0.5, y: 0.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI) };
}
