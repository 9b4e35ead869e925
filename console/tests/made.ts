/** Reports in the service's form, for tests. */

import type { Blockage, LinkState, Position, Terminal } from "../src/api/types";

export const START_MS = Date.parse("2026-11-25T16:00:00.000Z");

export function at(s: number): string {
  return new Date(START_MS + 1000 * s).toISOString();
}

export function terminal(node: number, members: Partial<Terminal> = {}): Terminal {
  return { node, beam: "east", name: `bus ${node}`, weight: 1, forward_minimum_bps: 0, return_minimum_bps: 0, ...members };
}

export function link(node: number, s: number, members: Partial<LinkState> = {}): LinkState {
  return {
    terminal: node, link: "forward", state: "up", time: at(s), received: at(s), node: 1, incarnation: 1,
    uptime_ms: 1000 * s, gateway: 1, path: "satellite", offered_bytes: 0, sent_bytes: 0, backlogged_bytes: 0,
    streams: 1, efficiency: 1, efficiency_told: false, synchronised: true, ...members,
  };
}

export function position(node: number, s: number, members: Partial<Position> = {}): Position {
  return { terminal: node, time: at(s), longitude: 7, latitude: 46, ...members };
}

export function expected(node: number, entryS: number, exitS: number, members: Partial<Blockage> = {}): Blockage {
  return { state: "predicted", source: "predicted", terminal: node, entry: at(entryS), exit: at(exitS), id: 1, confidence: 1, ...members };
}
