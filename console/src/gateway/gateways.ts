/** The gateways of a fleet, as their terminals and the reports of links tell of them. No I/O and no clock. */

import type { LinkName, LinkState, Terminal } from "../api/types";
import { type Fleet, type Health, healthOf, SILENT_AFTER_MS } from "../fleet/fleet";
import { healthOfLink } from "../terminal/heard";

const LINKS: LinkName[] = ["forward", "return"];

export interface Gateway {
  node: number;
  /** Those that are at it, in the fleet's order. */
  terminals: Terminal[];
  /** When the last report of a link that it has posted came to the service. */
  heardMs: number | undefined;
  /** The last report of a link on which it sends itself. */
  own: LinkState | undefined;
}

/** The sums over all links of one direction that are not silent; absent where none of them has the figure. */
export interface Totals {
  /** How many links are in each state, the silent ones too. */
  links: Record<Health, number>;
  /** Bit/s that they carry, and that they are allowed. */
  rateBps: number | undefined;
  allowedBps: number | undefined;
  backloggedBytes: number;
  streams: number;
  storedBundles: number;
  storedBytes: number;
}

/** The gateway that a terminal is at, as far as that is known. */
export function gatewayOf({ gateway, heard_by }: Terminal): number | undefined {
  return gateway ?? heard_by ?? undefined;
}

export function withoutTerminals(node: number): Gateway {
  return { node, terminals: [], heardMs: undefined, own: undefined };
}

/** The gateways that have terminals or have reported of links, by their numbers. */
export function gatewaysOf(fleet: Fleet): Map<number, Gateway> {
  const found = new Map<number, Gateway>();
  const of = (node: number) => {
    const gateway = found.get(node) ?? withoutTerminals(node);
    found.set(node, gateway);
    return gateway;
  };
  for (const terminal of fleet.terminals.values()) {
    const node = gatewayOf(terminal);
    if (node !== undefined) of(node).terminals.push(terminal);
  }
  for (const vehicle of fleet.vehicles.values()) {
    for (const link of LINKS) {
      const state = vehicle[link];
      if (!state) continue;
      const gateway = of(state.gateway);
      const receivedMs = Date.parse(state.received);
      gateway.heardMs = Math.max(gateway.heardMs ?? receivedMs, receivedMs);
      const isOwn = state.node === gateway.node && state.link === "forward";
      if (isOwn && !(gateway.own && Date.parse(gateway.own.received) >= receivedMs)) gateway.own = state;
    }
  }
  return found;
}

/** Silent once it has posted no report of a link for as long as makes a terminal silent. */
export function healthOfGateway({ heardMs }: Gateway, nowMs: number): Health {
  return heardMs !== undefined && nowMs - heardMs <= SILENT_AFTER_MS ? "up" : "silent";
}

/** How many terminals have all their links up. */
export function upOf(fleet: Fleet, terminals: readonly Terminal[], nowMs: number): number {
  return terminals.filter(({ node }) => healthOf(fleet.vehicles.get(node), nowMs) === "up").length;
}

/** Terminals by their beams. */
export function byBeam(terminals: readonly Terminal[]): Map<string, Terminal[]> {
  const found = new Map<string, Terminal[]>();
  for (const terminal of terminals) {
    const others = found.get(terminal.beam);
    if (others) others.push(terminal);
    else found.set(terminal.beam, [terminal]);
  }
  return found;
}

export function totalsOf(fleet: Fleet, terminals: readonly Terminal[], link: LinkName, nowMs: number): Totals {
  const found: Totals = {
    links: { up: 0, blocked: 0, down: 0, silent: 0 },
    rateBps: undefined,
    allowedBps: undefined,
    backloggedBytes: 0,
    streams: 0,
    storedBundles: 0,
    storedBytes: 0,
  };
  for (const { node } of terminals) {
    const state = fleet.vehicles.get(node)?.[link];
    const health = state ? healthOfLink(state, nowMs) : "silent";
    found.links[health] += 1;
    // What a silent link carries and has waiting is not known any more.
    if (!state || health === "silent") continue;
    found.rateBps = sum(found.rateBps, fleet.rates.newest(node, link));
    found.allowedBps = sum(found.allowedBps, state.rate_bps);
    found.backloggedBytes += state.backlogged_bytes;
    found.streams += state.streams;
    found.storedBundles += state.figures?.stored_bundles ?? 0;
    found.storedBytes += state.figures?.stored_bytes ?? 0;
  }
  return found;
}

/** The newest plan that any of the terminals' links follows. */
export function newestPlan(fleet: Fleet, terminals: readonly Terminal[], link: LinkName): number | undefined {
  let newest: number | undefined;
  for (const { node } of terminals) {
    const plan = fleet.vehicles.get(node)?.[link]?.plan;
    if (typeof plan === "number") newest = Math.max(newest ?? plan, plan);
  }
  return newest;
}

function sum(total: number | undefined, more: number | null | undefined): number | undefined {
  return typeof more === "number" ? (total ?? 0) + more : total;
}
