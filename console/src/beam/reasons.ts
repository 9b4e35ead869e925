/** Why a terminal has the rate that it has: its segment of the plan, in words. */

import type { Line, LinkState, Segment } from "../api/types";
import { SILENT_AFTER_MS } from "../fleet/fleet";
import { bits, bps, seconds } from "../shell/format";

/** Plan and report use two clocks: a state this soon after a segment's start may be from before it. */
const SETTLED_MS = 5_000;

/** The segment in force at a time. */
export function segmentAt(line: Line, nowMs: number): Segment | undefined {
  return line.segments.find((one) => Date.parse(one.start) <= nowMs && nowMs < Date.parse(one.end));
}

/** Sentences that explain a segment; amounts are bits of capacity over all of it. */
export function reasons(line: Line, segment: Segment, nowMs: number): string[] {
  const ms = Date.parse(segment.end) - Date.parse(segment.start);
  const fairBps = ((segment.fair_bits ?? 0) * 1000) / ms;
  const left = seconds(Date.parse(segment.end) - nowMs);
  const said = [`Its rate is ${bps(segment.rate_bps)}, for ${left} more; its fair share would be ${bps(fairBps * line.efficiency)}.`];
  if (line.efficiency !== 1) {
    said.push(`Each bit of the beam's capacity carries ${line.efficiency} of its bits: its link's efficiency.`);
  }
  const next = line.segments.find((one) => one.state === "blocked" && Date.parse(one.end) > nowMs);
  if (segment.state === "blocked") said.push("It is blocked, so nothing is sent to it; the others have its share.");
  if (segment.state === "borrowing" && next) {
    const inS = seconds(Date.parse(next.start) - nowMs);
    const forS = seconds(Date.parse(next.end) - Date.parse(next.start));
    said.push(`It will be blocked in ${inS} for ${forS}: so it borrows what it cannot use then.`);
  }
  const moved: [number | undefined, string][] = [
    [segment.borrowed_bits, "it borrows from the others"],
    [segment.lent_bits, "it lends to who will be blocked"],
    [segment.repaid_bits, "it is repaid what it lent"],
    [segment.repaying_bits, "it repays of what it borrowed"],
  ];
  for (const [amount, what] of moved) {
    if (amount) said.push(`Over this part of the plan ${what}: ${bits(amount)}, or ${bps((amount * 1000) / ms)}.`);
  }
  if (segment.state === "fair") said.push("Nothing is lent or repaid now: it has what max-min fairness gives it.");
  if (line.guaranteed_bps > 0) said.push(`Without a plan it would have ${bps(line.guaranteed_bps)}, its guaranteed rate.`);
  return said;
}

/** Tells how a link differs from its plan now; of a silent link, nothing new is known. */
export function contradiction(segment: Segment, link: LinkState | undefined, nowMs: number): string | undefined {
  if (!link || nowMs - Date.parse(link.received) > SILENT_AFTER_MS) return undefined;
  if (Date.parse(link.time) - Date.parse(segment.start) < SETTLED_MS) return undefined;
  if (segment.state === "blocked") {
    return link.state === "up" ? "The plan is contradicted: it has the link blocked, and the link is up. What is heard counts: it sends at its guaranteed rate." : undefined;
  }
  // A link that is down, such as a parked vehicle's, still gets capacity so that it can come back.
  return link.state === "blocked" && segment.rate_bps > 0 ? "The plan is contradicted: it has a rate for the link, and the link is blocked." : undefined;
}
