/**
 * What links carried in the last minutes, by the counts that nodes report: the difference of two
 * reports over the time between them. Bounded: so many samples of each link, and so many links.
 */

import type { LinkName, LinkState } from "../api/types";

export interface RateSample {
  /** By the service's clock, ms. */
  timeMs: number;
  /** IP bits per second since the sample before; absent for the first one of a node's run. */
  rateBps: number | undefined;
  allowedBps: number | undefined;
  backloggedBytes: number;
  streams: number;
  capacityBps: number | undefined;
  state: LinkState["state"];
}

interface Held {
  last: LinkState;
  samples: RateSample[];
}

export class RateHistory {
  private readonly held = new Map<string, Held>();

  constructor(
    private readonly mostSamples = 600,
    private readonly mostLinks = 400,
  ) {}

  add(one: LinkState): void {
    const key = `${one.terminal}:${one.link}`;
    let held = this.held.get(key);
    if (!held) {
      if (this.held.size >= this.mostLinks) return;
      held = { last: one, samples: [] };
      this.held.set(key, held);
    }
    const rateBps = rateBetween(held.last, one);
    held.last = one;
    held.samples.push({
      timeMs: Date.parse(one.time),
      rateBps,
      allowedBps: one.rate_bps ?? undefined,
      backloggedBytes: one.backlogged_bytes,
      streams: one.streams,
      capacityBps: one.capacity_bps ?? undefined,
      state: one.state,
    });
    if (held.samples.length > this.mostSamples) held.samples.shift();
  }

  of(terminal: number, link: LinkName): readonly RateSample[] {
    return this.held.get(`${terminal}:${link}`)?.samples ?? [];
  }

  /** The last known rate; undefined where two reports of one run are not at hand. */
  newest(terminal: number, link: LinkName): number | undefined {
    return this.of(terminal, link).at(-1)?.rateBps;
  }

  forget(terminal: number): void {
    this.held.delete(`${terminal}:forward`);
    this.held.delete(`${terminal}:return`);
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
