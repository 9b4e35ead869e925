import { describe, expect, test } from "vitest";
import type { Intervention } from "../src/api/types";
import { describe as words, type Fields, requestOf } from "../src/beam/intervention-text";
import { at, START_MS } from "./made";

const FIELDS: Fields = { choice: "freeze", terminal: undefined, forward: "", return: "", inMin: "0", forMin: "10", note: "" };
const asked = (fields: Partial<Fields>) => requestOf({ ...FIELDS, ...fields }, "east", START_MS);
const until = new Date(START_MS + 600_000).toISOString();

describe("what a form of an intervention asks for", () => {
  test("a freeze is of the beam, and begins at once", () => {
    expect(asked({ note: "  storm " })).toEqual({ kind: "freeze", beam: "east", until, note: "storm" });
  });
  test("rates are whole bit/s, and an empty one is left as it is", () => {
    expect(asked({ choice: "rate", terminal: 11, forward: "1.5" })).toEqual({
      kind: "rate", terminal: 11, until, forward_bps: 1_500_000,
    });
    expect(asked({ choice: "rate", terminal: 11, return: "0" })).toEqual({ kind: "rate", terminal: 11, until, return_bps: 0 });
  });
  test("maintenance that is planned begins later and lasts as long", () => {
    expect(asked({ choice: "beam-maintenance", forward: "0", inMin: "5" })).toEqual({
      kind: "maintenance", beam: "east", forward_bps: 0,
      from: new Date(START_MS + 300_000).toISOString(),
      until: new Date(START_MS + 900_000).toISOString(),
    });
    // Text typed for another choice is not sent.
    expect(asked({ choice: "terminal-maintenance", terminal: 12, forward: "3" })).toEqual({ kind: "maintenance", terminal: 12, until });
  });
  test("what is missing is said", () => {
    expect(asked({ choice: "rate" })).toBe("choose a terminal");
    expect(asked({ choice: "rate", terminal: 11 })).toContain("say a rate");
    expect(asked({ choice: "beam-maintenance" })).toContain("say a rate");
  });
});

describe("interventions in words", () => {
  const made = (kind: Intervention["kind"], more: Partial<Intervention> = {}): Intervention => ({
    id: 1, kind, state: "in force", beam: "east", from: at(0), until: at(600), set_at: at(0), revision: 1, ...more,
  });
  const name = (node: number) => `Bus ${node}`;
  test("they say whose and what", () => {
    expect(words(made("freeze"), name)).toContain("nothing new is lent");
    expect(words(made("rate", { terminal: 11, forward_bps: 0, return_bps: 1_000_000 }), name)).toBe("Bus 11 has 0 bit/s forward, 1 Mbit/s return");
    expect(words(made("maintenance", { return_bps: 0 }), name)).toBe("Maintenance: the beam carries 0 bit/s return");
    expect(words(made("maintenance", { terminal: 12 }), name)).toContain("Bus 12 is in maintenance");
    expect(words(made("withdrawal", { terminal: 11, entry: at(60), obstruction: "A1" }), name)).toContain("UTC (A1) is withdrawn");
  });
});
