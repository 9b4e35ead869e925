/**
 * The console's state of the fleet: read once, then updated by events. No I/O and no clock.
 *
 * Newer data win, whichever comes first: an event may overtake an answer.
 */

import type {
  Beam,
  Blockage,
  LinkState,
  Position,
  ServerEvent,
  Terminal,
} from "../api/types";
import { RateHistory } from "./rate-history";

export interface Vehicle {
  node: number;
  position?: Position & { timeMs: number };
  forward?: LinkState;
  return?: LinkState;
  /** When the last report of either came to the service. */
  heardMs?: number;
  /** Expected blockages by their ids. */
  expected: Map<number, Blockage>;
}

export type Health = "up" | "blocked" | "down" | "silent";

/** The data of one reading, all from about the same time. */
export interface Reading {
  beams: Beam[];
  terminals: Terminal[];
  links: LinkState[];
  positions: Position[];
  blockages: Blockage[];
}

export class Fleet {
  beams = new Map<string, Beam>();
  terminals = new Map<number, Terminal>();
  /** Goes up when a terminal has changed. */
  changes = 0;
  readonly vehicles = new Map<number, Vehicle>();
  readonly rates = new RateHistory();

  /** Takes a reading, and forgets whatever no longer exists. */
  read(reading: Reading): void {
    this.beams = new Map(reading.beams.map((beam) => [beam.id, beam]));
    this.terminals = new Map(reading.terminals.map((terminal) => [terminal.node, terminal]));
    for (const node of this.vehicles.keys()) {
      if (!this.terminals.has(node)) this.forget(node);
    }
    for (const vehicle of this.vehicles.values()) vehicle.expected.clear();
    reading.positions.forEach((one) => this.position(one));
    reading.links.forEach((one) => this.link(one));
    reading.blockages.forEach((one) => this.blockage(one));
  }

  /** Takes an event; returns false if beams and terminals have to be read again because of it. */
  apply({ kind, data }: ServerEvent): boolean {
    switch (kind) {
      case "positions":
        (data.positions as Position[]).forEach((one) => this.position(one));
        return true;
      case "links":
        (data.links as LinkState[]).forEach((one) => this.link(one));
        return true;
      case "blockages":
        (data.blockages as Blockage[]).forEach((one) => this.blockage(one));
        return true;
      case "terminal":
        return this.terminal(data);
      case "beam":
        return data.action === "capacity";
      default:
        return true;
    }
  }

  /** A terminal's name, or its number where it has none here. */
  nameOf(node: number): string {
    return this.terminals.get(node)?.name ?? `terminal ${node}`;
  }

  vehicle(node: number): Vehicle {
    let vehicle = this.vehicles.get(node);
    if (!vehicle) {
      vehicle = { node, expected: new Map() };
      this.vehicles.set(node, vehicle);
    }
    return vehicle;
  }

  private terminal(data: Record<string, unknown>): boolean {
    this.changes += 1;
    const node = data.terminal as number;
    if (data.action === "deleted") {
      this.terminals.delete(node);
      this.forget(node);
      return true;
    }
    if (data.state) {
      this.terminals.set(node, data.state as Terminal);
      return true;
    }
    // Nothing that is shown depends on a route.
    return data.action === "route";
  }

  private forget(node: number): void {
    this.vehicles.delete(node);
    this.rates.forget(node);
  }

  private position(one: Position): void {
    const timeMs = Date.parse(one.time);
    const vehicle = this.vehicle(one.terminal);
    if (vehicle.position && vehicle.position.timeMs > timeMs) return;
    vehicle.position = { ...one, timeMs };
  }

  private link(one: LinkState): void {
    const vehicle = this.vehicle(one.terminal);
    const known = vehicle[one.link];
    // The same order as the service's: a node's clock may be set back, and another gateway may report a
    // moved terminal. A report that is read again is not new: it gives no time difference for a rate.
    if (
      known &&
      (known.node === one.node
        ? known.incarnation - one.incarnation || known.uptime_ms - one.uptime_ms
        : Date.parse(known.time) - Date.parse(one.time)) >= 0
    )
      return;
    vehicle[one.link] = one;
    vehicle.heardMs = Math.max(vehicle.heardMs ?? 0, Date.parse(one.received));
    this.rates.add(one);
  }

  private blockage(one: Blockage): void {
    // Observed blockages also show in the links' states.
    if (one.state === "observed" || one.id === undefined || one.id === null) return;
    const { expected } = this.vehicle(one.terminal);
    if (one.state === "predicted") expected.set(one.id, one);
    else expected.delete(one.id);
  }
}

/** An idle link is reported every 10 s, and a report may take some seconds: longer means silence. */
export const SILENT_AFTER_MS = 25_000;

/**
 * The worse state of both directions, as its clients notice it; silent if no report comes of either.
 * Called often, for each vehicle.
 */
export function healthOf(vehicle: Vehicle | undefined, nowMs: number): Health {
  const heardMs = vehicle?.heardMs;
  if (heardMs === undefined || nowMs - heardMs > SILENT_AFTER_MS) return "silent";
  const [forward, back] = [vehicle?.forward?.state, vehicle?.return?.state];
  if (forward === "down" || back === "down") return "down";
  return forward === "blocked" || back === "blocked" ? "blocked" : "up";
}
