import { describe, expect, test } from "vitest";
import { firstOf } from "../src/fleet/attention";
import { countdown, nextBlockage } from "../src/fleet/blockage";
import { EventLog } from "../src/fleet/event-log";
import { Fleet, healthOf } from "../src/fleet/fleet";
import { RateHistory, rateBetween } from "../src/fleet/rate-history";
import { healthOfLink } from "../src/terminal/heard";
import { at, expected, link, position, START_MS, terminal } from "./made";

function fleet(): Fleet {
  const made = new Fleet();
  made.read({ beams: [], terminals: [terminal(11), terminal(12)], links: [], positions: [], blockages: [] });
  return made;
}

describe("the fleet", () => {
  test("is the same whether an event comes before or after the answer that is older", () => {
    const [first, second] = [fleet(), fleet()];
    const events = [
      { kind: "links", data: { links: [link(11, 9, { state: "blocked" })] } },
      { kind: "positions", data: { positions: [position(11, 9)] } },
    ];
    const older = [
      { kind: "links", data: { links: [link(11, 5)] } },
      { kind: "positions", data: { positions: [position(11, 5)] } },
    ];
    [...events, ...older].forEach((one) => first.apply(one));
    [...older, ...events].forEach((one) => second.apply(one));
    for (const one of [first, second]) {
      expect(one.vehicle(11).forward?.state).toBe("blocked");
      expect(one.vehicle(11).position?.time).toBe(at(9));
    }
  });

  test("follows a node whose clock is set back, and its next run", () => {
    const made = fleet();
    made.apply({ kind: "links", data: { links: [link(11, 100)] } });
    const setBack = link(11, 101, { time: at(1), state: "blocked" });
    made.apply({ kind: "links", data: { links: [setBack] } });
    expect(made.vehicle(11).forward?.state).toBe("blocked");
    expect(healthOf(made.vehicle(11), START_MS + 126_000)).toBe("blocked");
    made.apply({ kind: "links", data: { links: [link(11, 102, { time: at(0), uptime_ms: 0, incarnation: 2, state: "down" })] } });
    expect(made.vehicle(11).forward?.state).toBe("down");
    made.apply({ kind: "links", data: { links: [link(11, 103, { incarnation: 1 })] } });
    expect(made.vehicle(11).forward?.state).toBe("down");
  });

  test("forgets what a new reading does not have", () => {
    const made = fleet();
    made.apply({ kind: "links", data: { links: [link(12, 1)] } });
    made.apply({ kind: "blockages", data: { blockages: [expected(11, 10, 20)] } });
    made.read({ beams: [], terminals: [terminal(11)], links: [], positions: [], blockages: [] });
    expect(made.vehicles.has(12)).toBe(false);
    expect(made.vehicle(11).expected.size).toBe(0);
  });

  test("a terminal's change is taken from its event; what it does not say has to be read", () => {
    const made = fleet();
    const set = { terminal: 11, action: "set", state: terminal(11, { name: "renamed" }) };
    expect(made.apply({ kind: "terminal", data: set })).toBe(true);
    expect(made.nameOf(11)).toBe("renamed");
    expect(made.apply({ kind: "terminal", data: { terminal: 13, action: "set" } })).toBe(false);
    expect(made.apply({ kind: "terminal", data: { terminal: 11, action: "deleted" } })).toBe(true);
    expect(made.terminals.has(11)).toBe(false);
  });

  test("is as well as its worse direction, and silent where nothing was reported", () => {
    const made = fleet();
    const health = (s: number) => healthOf(made.vehicle(11), START_MS + 1000 * s);
    expect(health(1)).toBe("silent");
    made.apply({ kind: "links", data: { links: [link(11, 1), link(11, 1, { link: "return", state: "blocked" })] } });
    expect(health(2)).toBe("blocked");
    made.apply({ kind: "links", data: { links: [link(11, 2, { state: "down" })] } });
    expect(health(3)).toBe("down");
  });

  test("is silent once neither direction is reported any more, whatever was said last", () => {
    const made = fleet();
    const back = (s: number) => link(11, s, { link: "return" });
    made.apply({ kind: "links", data: { links: [link(11, 1), back(1)] } });
    expect(healthOf(made.vehicle(11), START_MS + 20_000)).toBe("up");
    expect(healthOf(made.vehicle(11), START_MS + 60_000)).toBe("silent");
    // In a road tunnel the terminal cannot report; its gateway does.
    made.apply({ kind: "links", data: { links: [link(11, 50, { state: "blocked" })] } });
    expect(healthOf(made.vehicle(11), START_MS + 60_000)).toBe("blocked");
    expect(healthOfLink(back(1), START_MS + 60_000)).toBe("silent");
    expect(healthOfLink(back(50), START_MS + 60_000)).toBe("up");
  });
});

describe("blockages ahead", () => {
  test("the next one counts, unless it is unsure or over", () => {
    const made = fleet();
    const blockages = [
      expected(11, 50, 60, { id: 1 }),
      expected(11, 20, 30, { id: 2, confidence: 0.3 }),
      expected(11, 30, 40, { id: 3 }),
      expected(11, 1, 5, { id: 4 }),
    ];
    made.apply({ kind: "blockages", data: { blockages } });
    const next = nextBlockage(made.vehicle(11), START_MS + 6000);
    expect(next?.blockage.id).toBe(3);
    expect(next && countdown(next)).toBe("in 0:24 for 10 s");
    made.apply({ kind: "blockages", data: { blockages: [expected(11, 30, 40, { id: 3, state: "withdrawn" })] } });
    expect(nextBlockage(made.vehicle(11), START_MS + 6000)?.blockage.id).toBe(1);
  });

  test("inside, the countdown runs to the exit", () => {
    const made = fleet();
    made.apply({ kind: "blockages", data: { blockages: [expected(11, 10, 40)] } });
    const next = nextBlockage(made.vehicle(11), START_MS + 15_000);
    expect(next && countdown(next)).toBe("for 25 s more");
  });
});

describe("who needs attention first", () => {
  const fleet = new Fleet();
  const nodes = Array.from({ length: 60 }, (_, index) => ((7 * index) % 60) + 1);
  const states = ["up", "blocked", "down"] as const;
  fleet.read({
    beams: [],
    terminals: nodes.map((node) => terminal(node)),
    // Every fourth is silent.
    links: nodes.filter((node) => node % 4).map((node) => link(node, 1, { state: states[node % 3] ?? "up" })),
    positions: [],
    blockages: nodes.filter((node) => node % 5 === 0).map((node) => expected(node, 100 - node, 200)),
  });
  const inMs = (node: number) => nextBlockage(fleet.vehicle(node), START_MS)?.inMs ?? Number.MAX_SAFE_INTEGER;
  const ranks = ["down", "blocked", "silent", "up"];
  const rank = (node: number) => ranks.indexOf(healthOf(fleet.vehicle(node), START_MS));
  const sorted = [...nodes].sort((a, b) => rank(a) - rank(b) || inMs(a) - inMs(b) || a - b);

  test("is as if all were sorted, however many are asked for", () => {
    for (const most of [1, 7, 20, 60, 100]) {
      const { count, listed } = firstOf(fleet, START_MS, most, () => true);
      expect(count).toBe(60);
      expect(listed.map((one) => one.terminal.node)).toEqual(sorted.slice(0, most));
    }
  });

  test("is found among those that are wanted", () => {
    const { count, listed } = firstOf(fleet, START_MS, 5, (one) => one.node > 50);
    expect(count).toBe(10);
    expect(listed.map((one) => one.terminal.node)).toEqual(sorted.filter((node) => node > 50).slice(0, 5));
  });
});

describe("rates", () => {
  test("are differences of one run's counts over its own time", () => {
    const before = link(11, 10, { sent_bytes: 1000 });
    expect(rateBetween(before, link(11, 12, { sent_bytes: 2000 }))).toBe(4000);
    expect(rateBetween(before, link(11, 12, { sent_bytes: 2000, incarnation: 2 }))).toBeUndefined();
    expect(rateBetween(before, link(11, 12, { sent_bytes: 500 }))).toBeUndefined();
    expect(rateBetween(before, before)).toBeUndefined();
  });

  test("are still known once the same reports have been read again", () => {
    const made = fleet();
    const newest = link(11, 2, { sent_bytes: 250 });
    made.apply({ kind: "links", data: { links: [link(11, 1, { sent_bytes: 125 })] } });
    made.apply({ kind: "links", data: { links: [newest] } });
    made.read({ beams: [], terminals: [terminal(11)], links: [newest], positions: [], blockages: [] });
    expect(made.rates.newest(11, "forward")).toBe(1000);
    expect(made.rates.of(11, "forward").map((one) => one.rateBps)).toEqual([undefined, 1000]);
    made.apply({ kind: "links", data: { links: [link(11, 3, { sent_bytes: 500 })] } });
    expect(made.rates.newest(11, "forward")).toBe(2000);
  });

  test("are kept for so long and for so many links only", () => {
    const history = new RateHistory(10, 2);
    for (let s = 0; s < 50; s++) {
      for (const node of [11, 12, 13]) history.add(link(node, s, { sent_bytes: 125 * s }));
    }
    expect(history.of(11, "forward")).toHaveLength(10);
    expect(history.newest(12, "forward")).toBe(1000);
    expect(history.of(13, "forward")).toHaveLength(0);
  });

  test("are known of every link, and kept of those that are looked at", () => {
    const history = new RateHistory(10, 2);
    const report = (s: number) => [11, 12, 13].forEach((node) => history.add(link(node, s, { sent_bytes: 125 * s })));
    [0, 1, 2].forEach(report);
    expect(history.newest(13, "forward")).toBe(1000);
    history.of(12, "forward");
    history.of(13, "forward");
    [3, 4].forEach(report);
    expect(history.of(13, "forward")).toHaveLength(2);
    expect(history.of(12, "forward")).toHaveLength(5);
    // Its time has passed, though nobody has looked at it.
    expect(history.of(11, "forward")).toHaveLength(0);
    history.forget(13);
    expect(history.newest(13, "forward")).toBeUndefined();
  });
});

describe("the log of events", () => {
  test("tells a change once, and not each fix of a prediction", () => {
    const [made, log] = [fleet(), new EventLog()];
    const tell = (kind: string, data: Record<string, unknown>) => {
      log.add({ kind, data }, START_MS, made);
      made.apply({ kind, data });
    };
    tell("links", { links: [link(11, 1)] });
    tell("links", { links: [link(11, 2)] });
    tell("links", { links: [link(11, 3, { state: "blocked" })] });
    tell("blockages", { blockages: [expected(11, 10, 20)] });
    tell("blockages", { blockages: [expected(11, 11, 21)] });
    tell("positions", { positions: [position(11, 3)] });
    expect(log.lines.map((line) => line.text)).toEqual([
      "bus 11: blockage expected at 16:00:10 UTC for 10.0 s, 100 % sure",
      "bus 11: forward link is blocked, was up",
    ]);
    expect(log.lines[0]).toMatchObject({ terminal: 11, beam: "east" });
  });

  test("has the blockages that were observed before it, or while no events came, once each", () => {
    const [made, log] = [fleet(), new EventLog()];
    const observed = (entry: number, exit: number | null, node = 11) =>
      expected(node, entry, 0, { state: "observed", source: "probing", link: "forward", exit: exit === null ? null : at(exit) });
    log.add({ kind: "blockages", data: { blockages: [observed(50, null)] } }, START_MS + 50_000, made);
    const read = [observed(10, 22), observed(50, 60), observed(30, null, 12)];
    log.addRead(read, made, START_MS);
    log.addRead(read, made, START_MS);
    expect(log.lines.map(({ timeMs, text }) => [(timeMs - START_MS) / 1000, text])).toEqual([
      [60, "bus 11: free again after 10.0 s (forward link, by probing)"],
      [50, "bus 11: blocked (forward link, by probing)"],
      [30, "bus 12: blocked (forward link, by probing)"],
      [22, "bus 11: free again after 12.0 s (forward link, by probing)"],
      [10, "bus 11: blocked (forward link, by probing)"],
    ]);
    expect(new Set(log.lines.map(({ key }) => key)).size).toBe(5);
  });

  test("says where events are missing, as the service could not be followed", () => {
    const [made, log] = [fleet(), new EventLog()];
    log.addRead([], made, START_MS);
    expect(log.lines).toEqual([]);
    log.addRead([], made, START_MS + 260_000, START_MS + 10_000);
    expect(log.lines).toMatchObject([
      { kind: "console", timeMs: START_MS + 260_000, text: "not live for 4 min 10 s: of that time only blockages are known" },
    ]);
  });

  test("tells of a rollout what becomes of it", () => {
    const [made, log] = [fleet(), new EventLog()];
    log.add({ kind: "rollout", data: { rollout: 3, state: "stopped", stage: 2, action: "stopped" } }, 0, made);
    log.add({ kind: "rollout", data: { rollout: 3, state: "running", stage: 2, action: "progress" } }, 0, made);
    expect(log.lines.map((line) => line.text)).toEqual(["rollout 3: stopped in stage 2"]);
  });

  test("tells of settings what went wrong with them, and of the ground that it is another", () => {
    const [made, log] = [fleet(), new EventLog()];
    const tell = (kind: string, data: Record<string, unknown>) => log.add({ kind, data }, 0, made);
    for (const action of ["set", "trial", "applied", "rolled-back"]) tell("settings", { terminal: 11, settings: 7, action });
    tell("settings", { gateway: 1, settings: 2, action: "refused" });
    tell("tiles", { map: "town", action: "set" });
    expect(log.lines.map((line) => line.text)).toEqual([
      "map town: ground set",
      "gateway 1: settings 2: refused",
      "bus 11: settings 7: rolled-back",
    ]);
    expect(log.lines[2]).toMatchObject({ kind: "settings", terminal: 11, beam: "east" });
  });

  test("has a bound", () => {
    const [made, log] = [fleet(), new EventLog()];
    for (let plan = 0; plan < 2500; plan++) log.add({ kind: "plans", data: { beam: "east", link: "forward", plan } }, 0, made);
    expect(log.lines).toHaveLength(2000);
    expect(log.lines[0]?.text).toContain("plan 2499");
  });
});
