/** Events as lines for people: the last ones, newest first, without positions. */

import type { Alert, Blockage, LinkState, ServerEvent } from "../api/types";
import { bits, bps, seconds } from "../shell/format";
import type { Fleet } from "./fleet";

export interface LogLine {
  key: number;
  timeMs: number;
  kind: string;
  text: string;
  terminal: number | undefined;
  /** Of what concerns a gateway alone. */
  gateway: number | undefined;
  beam: string | undefined;
}

const MOST_LINES = 2000;
/** How many begins and ends of blockages are remembered as logged. */
const MOST_TOLD = 4 * MOST_LINES;

export class EventLog {
  lines: LogLine[] = [];
  private count = 0;
  private readonly told = new Set<string>();
  private readonly linkStates = new Map<string, LinkState["state"]>();

  /** Takes in an event before the fleet does. */
  add(event: ServerEvent, nowMs: number, fleet: Fleet): void {
    const told = [...this.tell(event, fleet)];
    if (told.length === 0) return;
    const lines = told.map((one) => ({
      key: (this.count += 1),
      timeMs: nowMs,
      kind: event.kind,
      text: one.text,
      terminal: one.terminal,
      gateway: one.gateway,
      beam: one.beam ?? (one.terminal ? fleet.terminals.get(one.terminal)?.beam : undefined),
    }));
    this.lines = [...lines.reverse(), ...this.lines].slice(0, MOST_LINES);
  }

  /**
   * Takes blockages that were read: those that no event has logged are logged at their own time. A
   * line also says since when other events are missing.
   */
  addRead(blockages: Blockage[], fleet: Fleet, nowMs: number, missingSinceMs?: number): void {
    const found: LogLine[] = [];
    if (missingSinceMs !== undefined) {
      const text = `not live for ${seconds(nowMs - missingSinceMs)}: of that time only blockages are known`;
      found.push({ key: (this.count += 1), timeMs: nowMs, kind: "console", text, terminal: undefined, gateway: undefined, beam: undefined });
    }
    for (const one of blockages) {
      if (one.state !== "observed") continue;
      const ends = one.exit ? [{ ...one, exit: null }, one] : [one];
      for (const end of ends) {
        if (!this.isNews(end)) continue;
        found.push({
          key: (this.count += 1),
          timeMs: Date.parse(end.exit ?? end.entry),
          kind: "blockages",
          text: `${fleet.nameOf(one.terminal)}: ${blockageText(end, undefined)}`,
          terminal: one.terminal,
          gateway: undefined,
          beam: fleet.terminals.get(one.terminal)?.beam,
        });
      }
    }
    if (found.length === 0) return;
    this.lines = [...this.lines, ...found].sort((a, b) => b.timeMs - a.timeMs).slice(0, MOST_LINES);
  }

  /** Whether the begin or the end of an observed blockage has not been logged yet. */
  private isNews({ terminal, link, entry, exit }: Blockage): boolean {
    const key = `${terminal} ${link} ${Date.parse(entry)} ${Boolean(exit)}`;
    if (this.told.has(key)) return false;
    this.told.add(key);
    if (this.told.size > MOST_TOLD) this.told.delete(this.told.keys().next().value as string);
    return true;
  }

  private *tell(
    { kind, data }: ServerEvent,
    fleet: Fleet,
  ): Generator<{ text: string; terminal?: number; gateway?: number; beam?: string }> {
    if (kind === "blockages") {
      for (const one of data.blockages as Blockage[]) {
        if (one.state === "observed" && !this.isNews(one)) continue;
        const known = one.id ? fleet.vehicles.get(one.terminal)?.expected.get(one.id) : undefined;
        const text = blockageText(one, known);
        if (text) yield { text: `${fleet.nameOf(one.terminal)}: ${text}`, terminal: one.terminal };
      }
    } else if (kind === "alerts") {
      for (const one of data.alerts as Alert[]) {
        const what = one.resolved ? "resolved" : one.acknowledged ? "acknowledged" : "alert";
        yield { text: `${fleet.nameOf(one.terminal)}: ${what}: ${one.text}`, terminal: one.terminal };
      }
    } else if (kind === "links") {
      for (const one of data.links as LinkState[]) {
        const key = `${one.terminal}:${one.link}`;
        const before = this.linkStates.get(key);
        this.linkStates.set(key, one.state);
        if (before === undefined || before === one.state) continue;
        const text = `${fleet.nameOf(one.terminal)}: ${one.link} link is ${one.state}, was ${before}`;
        yield { text, terminal: one.terminal };
      }
    } else {
      const beam = data.beam as string | undefined;
      const terminal = data.terminal as number | undefined;
      const gateway = data.gateway as number | null | undefined;
      const text = otherText(kind, data, fleet);
      if (text) yield { text, ...(terminal ? { terminal } : gateway ? { gateway } : {}), ...(beam ? { beam } : {}) };
    }
  }
}

function blockageText(one: Blockage, known: Blockage | undefined): string | undefined {
  const entry = Date.parse(one.entry);
  const lasts = one.exit ? seconds(Date.parse(one.exit) - entry) : undefined;
  if (one.state === "observed") {
    const by = `${one.link ?? ""} link, by ${one.source}`;
    return lasts ? `free again after ${lasts} (${by})` : `blocked (${by})`;
  }
  if (one.state === "withdrawn") return "the expected blockage will not come";
  if (one.state === "passed") return `the expected blockage of ${lasts ?? "unknown length"} is over`;
  // A prediction moves with each fix: only the first one is logged.
  if (known) return undefined;
  const sure = `${Math.round(100 * (one.confidence ?? 1))} % sure`;
  return `blockage expected at ${one.entry.slice(11, 19)} UTC for ${lasts ?? "?"}, ${sure}`;
}

function otherText(kind: string, data: Record<string, unknown>, fleet: Fleet): string | undefined {
  const link = String(data.link ?? "");
  switch (kind) {
    case "plans":
      return `${link} plan ${data.plan} of beam ${data.beam}, because of ${data.reason}`;
    case "ledger":
      return `${link} link of beam ${data.beam}: ${bits(Number(data.moved_bits))} ${data.entry_kind}`;
    case "terminal":
      return `${fleet.nameOf(Number(data.terminal))}: ${data.action}`;
    case "beam":
      return `beam ${data.beam}: ${data.action}`;
    case "intervention": {
      const whose = data.terminal ? fleet.nameOf(Number(data.terminal)) : `beam ${data.beam}`;
      return `${whose}: ${data.what}: ${data.action}`;
    }
    case "obstructions":
      return `map: ${data.count} ${data.action}`;
    case "rollout":
      return data.action === "progress" ? undefined : `rollout ${data.rollout}: ${data.action} in stage ${data.stage}`;
    case "settings": {
      const whose = data.terminal ? fleet.nameOf(Number(data.terminal)) : `gateway ${data.gateway}`;
      // A rollout sets thousands, and each terminal confirms: only failures are logged.
      return data.action === "refused" || data.action === "rolled-back" ? `${whose}: settings ${data.settings}: ${data.action}` : undefined;
    }
    case "tiles":
      return `map ${data.map}: ground ${data.action}`;
    case "announcements":
      return `${(data.announcements as unknown[]).length} announced by terminals`;
    case "lease":
      return data.holder ? `beam ${data.beam} is planned by ${data.holder}` : `nobody plans beam ${data.beam}`;
    case "opensand":
      return `NCC of beam ${data.beam}: ${data.connected ? `connected, ${bps(Number(data.rounding_bps ?? 0))} rounded off` : "not connected"}`;
    default:
      // Acknowledgements follow every plan.
      return undefined;
  }
}
