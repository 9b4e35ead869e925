/** Interventions in words, and the request from a form's fields. */

import type { Intervention } from "../api/types";
import { bps } from "../shell/format";

export type Choice = "freeze" | "rate" | "beam-maintenance" | "terminal-maintenance";

export const CHOICES: Record<Choice, string> = {
  freeze: "Freeze lending in the beam",
  rate: "Set a terminal's rate",
  "beam-maintenance": "Maintenance of the beam",
  "terminal-maintenance": "Maintenance of a terminal",
};

/** "frozen: nothing new is lent". */
export function describe(one: Intervention, nameOf: (node: number) => string): string {
  const whose = one.terminal ? nameOf(one.terminal) : "the beam";
  const rates = [
    one.forward_bps === undefined || one.forward_bps === null ? "" : `${bps(one.forward_bps)} forward`,
    one.return_bps === undefined || one.return_bps === null ? "" : `${bps(one.return_bps)} return`,
  ]
    .filter((text) => text)
    .join(", ");
  switch (one.kind) {
    case "freeze":
      return "Frozen: nothing new is lent, what runs is kept";
    case "rate":
      return `${whose} has ${rates}`;
    case "maintenance":
      return one.terminal ? `${whose} is in maintenance: it wants nothing` : `Maintenance: the beam carries ${rates}`;
    case "withdrawal":
      return `${whose}: the blockage at ${one.entry?.slice(11, 19) ?? "?"} UTC${one.obstruction ? ` (${one.obstruction})` : ""} is withdrawn`;
  }
}

export interface Fields {
  choice: Choice;
  terminal: number | undefined;
  /** Mbit/s; empty: as it is. */
  forward: string;
  return: string;
  inMin: string;
  forMin: string;
  note: string;
}

/** The request to the service, or what is missing, in words. */
export function requestOf(fields: Fields, beam: string, nowMs: number): Record<string, unknown> | string {
  const { choice } = fields;
  const ofTerminal = choice === "rate" || choice === "terminal-maintenance";
  if (ofTerminal && fields.terminal === undefined) return "choose a terminal";
  const withRates = choice === "rate" || choice === "beam-maintenance";
  if (withRates && fields.forward === "" && fields.return === "") return "say a rate of the forward link, the return link, or both";
  const beginMs = nowMs + 60_000 * Number(fields.inMin);
  const body: Record<string, unknown> = {
    kind: choice === "beam-maintenance" || choice === "terminal-maintenance" ? "maintenance" : choice,
    until: new Date(beginMs + 60_000 * Number(fields.forMin)).toISOString(),
  };
  if (ofTerminal) body.terminal = fields.terminal;
  else body.beam = beam;
  if (Number(fields.inMin) > 0) body.from = new Date(beginMs).toISOString();
  if (withRates && fields.forward !== "") body.forward_bps = Math.round(1e6 * Number(fields.forward));
  if (withRates && fields.return !== "") body.return_bps = Math.round(1e6 * Number(fields.return));
  if (fields.note.trim() !== "") body.note = fields.note.trim();
  return body;
}
