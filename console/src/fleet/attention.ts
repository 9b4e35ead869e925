/** The terminals that need attention first. Called twice a second, so it allocates only for those shown. */

import type { Terminal } from "../api/types";
import { type Ahead, nextBlockage } from "./blockage";
import { type Fleet, healthOf, type Health, type Vehicle } from "./fleet";

const ORDER: Health[] = ["down", "blocked", "silent", "up"];

export interface Listed {
  terminal: Terminal;
  vehicle: Vehicle;
  health: Health;
  ahead: Ahead | undefined;
}

/**
 * How many terminals are wanted, and the first `most` of them: by their links' state, then by how
 * soon a blockage is expected, then by their numbers.
 */
export function firstOf(
  fleet: Fleet,
  nowMs: number,
  most: number,
  wants: (one: Terminal) => boolean,
  /** The time for which the links' states are known. */
  asOfMs = nowMs,
): { count: number; listed: Listed[] } {
  const expecting = ORDER.map((): Listed[] => []);
  const others = ORDER.map((): Terminal[] => []);
  let count = 0;
  for (const terminal of fleet.terminals.values()) {
    if (!wants(terminal)) continue;
    count += 1;
    const vehicle = fleet.vehicle(terminal.node);
    const health = healthOf(vehicle, asOfMs);
    const ahead = nextBlockage(vehicle, nowMs);
    const place = ORDER.indexOf(health);
    if (ahead) expecting[place]?.push({ terminal, vehicle, health, ahead });
    else others[place]?.push(terminal);
  }
  const listed: Listed[] = [];
  ORDER.forEach((health, place) => {
    const first = expecting[place] ?? [];
    first.sort((a, b) => (a.ahead?.inMs ?? 0) - (b.ahead?.inMs ?? 0) || a.terminal.node - b.terminal.node);
    listed.push(...first.slice(0, most - listed.length));
    if (listed.length === most) return;
    const then = others[place] ?? [];
    then.sort((a, b) => a.node - b.node);
    for (const terminal of then.slice(0, most - listed.length)) {
      listed.push({ terminal, vehicle: fleet.vehicle(terminal.node), health, ahead: undefined });
    }
  });
  return { count, listed };
}
