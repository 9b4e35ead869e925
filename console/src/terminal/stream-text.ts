/** Texts about a terminal's streams. */

import type { OpenStream, StreamList } from "../api/types";
import { bytes } from "../shell/format";

/** Describes a stream: what it waits for, if anything, else its state. */
export function standing(stream: OpenStream): string {
  if (stream.waiting_bytes > 0) {
    const waiting = `${bytes(stream.waiting_bytes)} to be sent`;
    return stream.paths.length === 0 ? `blocked, ${waiting}` : `waits, ${waiting}`;
  }
  if (stream.unread_bytes > 0) return `its server has ${bytes(stream.unread_bytes)} to read`;
  return STATES[stream.state];
}

const STATES: Record<OpenStream["state"], string> = {
  early: "its request has not come yet",
  open: "open",
  "half-closed-local": "its server has finished",
  "half-closed-remote": "its client has finished",
  draining: "closing",
};

/** Says which of the streams are listed. */
export function listed({ open, streams }: StreamList): string {
  if (open === 0) return "No stream is open.";
  if (streams.length < open) return `${streams.length} of ${open} streams: those with most bytes, the largest first.`;
  return open === 1 ? "One stream." : `All ${open} streams, the largest first.`;
}
