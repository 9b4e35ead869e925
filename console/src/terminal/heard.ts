import type { LinkState } from "../api/types";
import { type Health, SILENT_AFTER_MS, type Vehicle } from "../fleet/fleet";

export interface Heard {
  /** The last report of the terminal itself. */
  state: LinkState;
  /** When that report came. */
  receivedMs: number;
  silent: boolean;
}

/** Returns the last report of the terminal itself; its gateway's reports about it do not count. */
export function lastHeard(vehicle: Vehicle, nowMs: number): Heard | undefined {
  const state = [vehicle.return, vehicle.forward].find((one) => one?.node === vehicle.node);
  if (!state) return undefined;
  const receivedMs = Date.parse(state.received);
  return { state, receivedMs, silent: nowMs - receivedMs > SILENT_AFTER_MS };
}

/** Returns one direction's state: silent once reports have stopped. */
export function healthOfLink(link: LinkState, nowMs: number): Health {
  return nowMs - Date.parse(link.received) > SILENT_AFTER_MS ? "silent" : link.state;
}
