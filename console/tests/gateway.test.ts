import { expect, test } from "vitest";
import type { Terminal } from "../src/api/types";
import { EventLog } from "../src/fleet/event-log";
import { Fleet } from "../src/fleet/fleet";
import { byBeam, gatewayOf, gatewaysOf, healthOfGateway, newestPlan, totalsOf, upOf } from "../src/gateway/gateways";
import { counted } from "../src/shell/counted";
import { link, START_MS, terminal } from "./made";

const back = { link: "return" } as const;
const terminals = [
  terminal(11, { gateway: 1, heard_by: 2 }),
  terminal(12, { heard_by: 1, beam: "west" }),
  terminal(13, { heard_by: 2 }),
  terminal(14),
];
const [first, second] = terminals as [Terminal, Terminal];

function fleet(): Fleet {
  const made = new Fleet();
  const links = [link(11, 1), link(11, 3, { ...back, node: 11 }), link(12, 2, { uptime_ms: 7 }), link(13, 9, { gateway: 3, node: 3 })];
  made.read({ beams: [], terminals, links, positions: [], blockages: [] });
  return made;
}

test("a terminal is at the gateway that an operator names, or else at the one that hears it", () => {
  expect(terminals.map(gatewayOf)).toEqual([1, 1, 2, undefined]);
  const found = gatewaysOf(fleet());
  expect([...found.values()].map(({ node, terminals }) => [node, terminals.map((one) => one.node)])).toEqual([
    [1, [11, 12]],
    [2, [13]],
    // It has reported of a terminal that is at another one.
    [3, []],
  ]);
  expect([...byBeam(terminals)].map(([beam, those]) => [beam, those.length])).toEqual([["east", 3], ["west", 1]]);
});

test("a gateway is heard by every report that it posts, and speaks for itself only of what it sends", () => {
  const found = gatewaysOf(fleet());
  const one = found.get(1);
  expect(one?.heardMs).toBe(START_MS + 3_000);
  expect(one?.own).toMatchObject({ terminal: 12, uptime_ms: 7 });
  expect(one && healthOfGateway(one, START_MS + 28_000)).toBe("up");
  expect(one && healthOfGateway(one, START_MS + 28_001)).toBe("silent");
  // Nothing has come of it yet, only of its terminal.
  const other = found.get(2);
  expect(other && [other.heardMs, other.own, healthOfGateway(other, START_MS)]).toEqual([undefined, undefined, "silent"]);
});

test("the sums of a gateway's links leave out what is silent, and what is not known", () => {
  const made = fleet();
  const figures = { queue_ms: 0, loss: 0, stored_bundles: 2, stored_bytes: 500, classes: [] };
  const report = (node: number, s: number, more: object) =>
    made.apply({ kind: "links", data: { links: [link(node, s, { backlogged_bytes: 1_000, streams: 2, plan: node, ...more })] } });
  report(11, 40, { rate_bps: 8_000 });
  report(11, 41, { rate_bps: 8_000, sent_bytes: 125, figures });
  report(12, 41, { state: "blocked", rate_bps: null });
  const sums = { rateBps: 1_000, allowedBps: 8_000, backloggedBytes: 2_000, streams: 4, storedBundles: 2, storedBytes: 500 };
  const nowMs = START_MS + 60_000;
  expect(totalsOf(made, [first, second], "forward", nowMs)).toMatchObject({ links: { up: 1, blocked: 1, down: 0, silent: 0 }, ...sums });
  const silent = totalsOf(made, [first, second], "return", nowMs);
  expect(silent.links).toEqual({ up: 0, blocked: 0, down: 0, silent: 2 });
  expect([silent.rateBps, silent.allowedBps, silent.streams]).toEqual([undefined, undefined, 0]);
  expect(upOf(made, [first, second], nowMs)).toBe(1);
  expect([newestPlan(made, [first, second], "forward"), newestPlan(made, [first], "return")]).toEqual([12, undefined]);
});

test("an event of a gateway's settings leads to the gateway", () => {
  const log = new EventLog();
  log.add({ kind: "settings", data: { gateway: 1, settings: 2, action: "refused" } }, 0, fleet());
  log.add({ kind: "settings", data: { terminal: 11, settings: 2, action: "refused" } }, 0, fleet());
  expect(log.lines.map(({ terminal, gateway }) => [terminal, gateway])).toEqual([[11, undefined], [undefined, 1]]);
});

test("one of a kind is not several", () => {
  expect([0, 1, 2].map((count) => counted(count, "stream"))).toEqual(["0 streams", "1 stream", "2 streams"]);
});
