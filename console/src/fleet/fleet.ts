/**
 * What the console knows of the fleet: read once, then kept by events. No I/O and no clock.
 *
 * What is newer wins, whatever comes first: an event may overtake an answer.
 */

import type {
  Beam,
  Blockage,
  LinkName,
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
  /** Expected blockages by their ids. */
  expected: Map<number, Blockage>;
  /** Observed blockages that last, by link. */
  blocked: Partial<Record<LinkName, Blockage>>;
}

export type Health = "up" | "blocked" | "down" | "silent";

/** What was read: everything at about one time. */
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
  readonly vehicles = new Map<number, Vehicle>();
  readonly rates = new RateHistory();
  /** Goes up with each change, so that a page knows that there is something to draw. */
  revision = 0;

  /** Takes in what was read, and forgets what is no longer there. */
  read(reading: Reading): void {
    this.beams = new Map(reading.beams.map((beam) => [beam.id, beam]));
    this.terminals = new Map(reading.terminals.map((terminal) => [terminal.node, terminal]));
    for (const node of this.vehicles.keys()) {
      if (!this.terminals.has(node)) this.forget(node);
    }
    for (const vehicle of this.vehicles.values()) {
      vehicle.expected.clear();
      vehicle.blocked = {};
    }
    reading.positions.forEach((one) => this.position(one));
    reading.links.forEach((one) => this.link(one));
    reading.blockages.forEach((one) => this.blockage(one));
    this.revision += 1;
  }

  /** Takes in an event; false if it can only be followed by reading beams and terminals anew. */
  apply({ kind, data }: ServerEvent): boolean {
    this.revision += 1;
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
      vehicle = { node, expected: new Map(), blocked: {} };
      this.vehicles.set(node, vehicle);
    }
    return vehicle;
  }

  private terminal(data: Record<string, unknown>): boolean {
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
    // A route concerns nothing that is shown.
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
    // The same order of times as the service's: a moved terminal has another gateway's word.
    if (known && Date.parse(known.time) > Date.parse(one.time)) return;
    vehicle[one.link] = one;
    this.rates.add(one);
  }

  private blockage(one: Blockage): void {
    const vehicle = this.vehicle(one.terminal);
    if (one.state === "observed") {
      if (!one.link) return;
      const known = vehicle.blocked[one.link];
      if (!one.exit) vehicle.blocked[one.link] = one;
      else if (known && known.entry <= one.entry) delete vehicle.blocked[one.link];
      return;
    }
    if (one.id === undefined || one.id === null) return;
    if (one.state === "predicted") vehicle.expected.set(one.id, one);
    else vehicle.expected.delete(one.id);
  }
}

/** The worst of both directions: what its clients feel. Asked of each vehicle, again and again. */
export function healthOf(vehicle: Vehicle | undefined): Health {
  const [forward, back] = [vehicle?.forward?.state, vehicle?.return?.state];
  if (forward === "down" || back === "down") return "down";
  if (forward === "blocked" || back === "blocked") return "blocked";
  return forward === undefined && back === undefined ? "silent" : "up";
}
