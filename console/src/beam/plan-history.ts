/** The plans of a link in force in a window of time: read once, then each new one as it is announced. */

import type { Client } from "../api/client";
import { inTurn } from "../api/in-turn";
import type { LinkName, Plan, Version } from "../api/types";

/** The most plans kept: in a busy time the oldest part of the window is left out. */
const MOST_PLANS = 60;
const AT_ONCE = 4;

export class PlanHistory {
  private plans = new Map<number, Plan>();
  /** Goes up with each plan. */
  revision = 0;

  constructor(
    private readonly client: Client,
    private readonly beam: string,
    private readonly link: LinkName,
    private readonly signal: AbortSignal,
  ) {}

  get all(): Plan[] {
    return [...this.plans.values()];
  }

  get newest(): Plan | undefined {
    return this.all.reduce<Plan | undefined>((best, one) => (!best || one.plan > best.plan ? one : best), undefined);
  }

  /** Reads the plans in force since a time, the newest first. */
  async read(sinceMs: number): Promise<void> {
    const path = `v1/beams/${this.beam}/plans?link=${this.link}&limit=${MOST_PLANS}`;
    const { plans } = await this.client.get<{ plans: Version[] }>(path, this.signal);
    const wanted: number[] = [];
    for (const version of plans) {
      wanted.push(version.plan);
      // The first one that began before the window is the last one that counts.
      if (Date.parse(version.start) <= sinceMs) break;
    }
    await inTurn(wanted, AT_ONCE, (version) => this.add(version));
  }

  /** Reads a plan that has just been made, or is missing. */
  async add(version: number): Promise<void> {
    if (this.plans.has(version)) return;
    const path = `v1/beams/${this.beam}/plans/${this.link}/${version}`;
    this.plans.set(version, await this.client.get<Plan>(path, this.signal));
    this.revision += 1;
  }

  /** Forgets the plans that were no longer in force at a time. */
  forget(beforeMs: number): void {
    const sorted = this.all.sort((a, b) => a.plan - b.plan);
    sorted.forEach((plan, index) => {
      const next = sorted[index + 1];
      const tooMany = index < sorted.length - MOST_PLANS;
      if (next && (tooMany || Date.parse(next.start) < beforeMs)) this.plans.delete(plan.plan);
    });
  }
}
