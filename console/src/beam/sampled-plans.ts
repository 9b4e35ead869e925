/**
 * A beam's past, sampled: the rates of the plan in force at each moment stand until the next moment.
 * Plans are made too often to read all of a day's. Blockages are exact nevertheless.
 */

import { ApiError, type Client } from "../api/client";
import { inTurn } from "../api/in-turn";
import { timeOf } from "../api/time";
import type { Blockage, LinkName, Plan } from "../api/types";
import { type Composed, compose } from "./composed";

const MOMENTS = 60;
const AT_ONCE = 4;
/** Of more blockages, the newest are drawn. */
const MOST_BLOCKAGES = 2_000;
/** The service lists blockages by their entries: those that began this long before the span are read, too. */
const LONGEST_MS = 86_400_000;
const NOT_FOUND = 404;

type Held = Pick<Plan, "start" | "end" | "capacity" | "lines">;

export class SampledPlans {
  /** Nothing where there was no plan, or where it is not kept any more. */
  private readonly held = new Map<number, Held | undefined>();
  /** From when on all blockages are known, if that is later than the beginning of the span. */
  blockedFromMs: number | undefined;

  constructor(
    private readonly client: Client,
    private readonly beam: string,
    private readonly link: LinkName,
    private readonly spanMs: number,
  ) {}

  get everyMs(): number {
    return this.spanMs / MOMENTS;
  }

  /** Reads what is missing of the span before a time; returns the whole. */
  async read(nowMs: number, signal: AbortSignal): Promise<Composed> {
    const fromMs = nowMs - this.spanMs;
    for (const ms of this.held.keys()) {
      if (ms < fromMs - this.everyMs) this.held.delete(ms);
    }
    const blocked = await this.blocked(fromMs, nowMs, signal);
    await inTurn(momentsOf(fromMs, nowMs, this.everyMs), AT_ONCE, (ms) => this.at(ms, signal));
    const found = [...this.held.values()].filter((one) => one !== undefined);
    return { ...compose(found, fromMs, nowMs), blocked };
  }

  private async at(ms: number, signal: AbortSignal): Promise<void> {
    if (this.held.has(ms)) return;
    const path = `v1/beams/${this.beam}/plans/${this.link}?at=${timeOf(ms)}`;
    try {
      this.held.set(ms, standing(await this.client.get<Plan>(path, signal), ms, ms + this.everyMs));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== NOT_FOUND) throw error;
      this.held.set(ms, undefined);
    }
  }

  private async blocked(fromMs: number, nowMs: number, signal: AbortSignal): Promise<Map<number, [number, number][]>> {
    const path = `v1/blockages?beam=${this.beam}&state=observed&order=newest&since=${timeOf(fromMs - LONGEST_MS)}`;
    const found = new Map<number, [number, number][]>();
    const blockages = await this.client.all<Blockage>(path, "blockages", signal, MOST_BLOCKAGES);
    const oldestMs = Date.parse(blockages.at(-1)?.entry ?? "");
    this.blockedFromMs = blockages.length >= MOST_BLOCKAGES && oldestMs > fromMs ? oldestMs : undefined;
    for (const one of blockages) {
      const exitMs = one.exit ? Date.parse(one.exit) : nowMs;
      if (one.link !== this.link || exitMs <= fromMs) continue;
      const spans = found.get(one.terminal) ?? [];
      spans.push([Date.parse(one.entry), exitMs]);
      found.set(one.terminal, spans);
    }
    return found;
  }
}

/** Multiples of a distance, so that those of a later window are the same ones. */
export function momentsOf(fromMs: number, toMs: number, everyMs: number): number[] {
  const first = Math.ceil(fromMs / everyMs);
  return Array.from({ length: Math.floor(toMs / everyMs) - first + 1 }, (_, index) => Math.round((first + index) * everyMs));
}

/** A plan whose rates at one moment stand until another moment. */
export function standing(plan: Held, atMs: number, untilMs: number): Held {
  const [start, end] = [new Date(atMs).toISOString(), new Date(untilMs).toISOString()];
  const step = plan.capacity.findLast(({ from }) => Date.parse(from) <= atMs) ?? plan.capacity[0];
  return {
    start,
    end,
    capacity: step ? [{ ...step, from: start }] : [],
    lines: plan.lines.map((line) => {
      const segment = line.segments.find((one) => Date.parse(one.start) <= atMs && atMs < Date.parse(one.end));
      return { ...line, segments: segment ? [{ start, end, rate_bps: segment.rate_bps, state: segment.state }] : [] };
    }),
  };
}
