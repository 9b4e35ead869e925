/**
 * The rates of links in the last minutes, from the counts that nodes report: the difference of two
 * reports over the time between them. The newest rate is kept for every link; the history only for a
 * bounded number of links and samples: the first ones, and those that are looked at.
 */

import type { LinkName, LinkState } from "../api/types";

export interface RateSample {
  /** By the service's clock, ms. */
  timeMs: number;
  /** IP bits per second since the sample before; absent for the first one of a node's run. */
  rateBps: number | undefined;
  allowedBps: number | undefined;
  backloggedBytes: number;
  capacityBps: number | undefined;
  state: LinkState["state"];
}

interface Held {
  last: LinkState;
  rateBps: number | undefined;
}

export class RateHistory {
  private readonly held = new Map<string, Held>();
  /** By link; the one that was looked at longest ago comes first. */
  private readonly courses = new Map<string, RateSample[]>();

  constructor(
    private readonly mostSamples = 600,
    private readonly mostLinks = 400,
  ) {}

  add(one: LinkState): void {
    const key = `${one.terminal}:${one.link}`;
    const before = this.held.get(key)?.last ?? one;
    const rateBps = rateBetween(before, one);
    this.held.set(key, { last: one, rateBps });
    let samples = this.courses.get(key);
    if (!samples) {
      if (this.courses.size >= this.mostLinks) return;
      samples = [];
      this.courses.set(key, samples);
    }
    samples.push({
      timeMs: Date.parse(one.time),
      rateBps,
      allowedBps: one.rate_bps ?? undefined,
      backloggedBytes: one.backlogged_bytes,
      capacityBps: one.capacity_bps ?? undefined,
      state: one.state,
    });
    if (samples.length > this.mostSamples) samples.shift();
  }

  /** The history of a link that is looked at; it begins now if none was kept. */
  of(terminal: number, link: LinkName): readonly RateSample[] {
    const key = `${terminal}:${link}`;
    const samples = this.courses.get(key) ?? [];
    this.courses.delete(key);
    this.courses.set(key, samples);
    if (this.courses.size > this.mostLinks) this.courses.delete(this.courses.keys().next().value as string);
    return samples;
  }

  /** The last known rate; undefined without two reports of one run. */
  newest(terminal: number, link: LinkName): number | undefined {
    return this.held.get(`${terminal}:${link}`)?.rateBps;
  }

  forget(terminal: number): void {
    for (const link of ["forward", "return"]) {
      this.held.delete(`${terminal}:${link}`);
      this.courses.delete(`${terminal}:${link}`);
    }
  }
}

/** Bits per second between two reports of one run of one node; undefined for any others. */
export function rateBetween(before: LinkState, after: LinkState): number | undefined {
  const sameRun = before.node === after.node && before.incarnation === after.incarnation;
  const passedMs = after.uptime_ms - before.uptime_ms;
  const sent = after.sent_bytes - before.sent_bytes;
  if (!sameRun || passedMs <= 0 || sent < 0) return undefined;
  return (8000 * sent) / passedMs;
}
