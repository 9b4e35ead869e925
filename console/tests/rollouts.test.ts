import { afterEach, describe, expect, it, vi } from "vitest";
import { ApiError, Client } from "../src/api/client";
import { ServerClock } from "../src/clock/server-clock";
import { seenOf } from "../src/settings/rollout-look";
import { changeTexts, orderOf, rolloutOf, stageText } from "../src/settings/rollout-text";
import { terminal } from "./made";

const CLASS = { name: "heavier", beam: "east", class: "bulk" };

describe("a rollout", () => {
  it("leaves to the service what is left out", () => {
    expect(rolloutOf({ ...CLASS, weight: "5" }, undefined)).toEqual({
      name: "heavier", beam: "east", whole: false,
      settings: { classes: [{ name: "bulk", weight: 5 }], paths: [] },
    });
  });

  it("has all that is filled in", () => {
    const fields = {
      ...CLASS, policy: "migrate", by: "lte, satellite", whole: "on",
      stages: "1, 10", hold_s: "60.5", wait_s: "600", most_failures: "2",
    };
    expect(rolloutOf(fields, undefined)).toEqual({
      name: "heavier", beam: "east", whole: true,
      settings: { classes: [{ name: "bulk", policy: "migrate", paths: ["lte", "satellite"] }], paths: [] },
      stages: [1, 10], hold_s: 60.5, wait_s: 600, most_failures: 2,
    });
  });

  it("takes rates of a path in Mbit/s, and terminals by number", () => {
    const fields = { name: "x", terminals: "10 11,12", path: "lte", send: "0.3", receive: "2", direction: "receive" };
    expect(rolloutOf(fields, undefined)).toEqual({
      name: "x", terminals: [10, 11, 12], whole: false,
      settings: { classes: [], paths: [{ name: "lte", send_rate_bps: 300_000, receive_rate_bps: 2_000_000, direction: "receive" }] },
    });
  });

  it("has the settings of a file as they are, for the service to judge", () => {
    const settings = { classes: [{ name: "bulk", weight: 5 }], other: 1 };
    const body = rolloutOf({ name: "x", tag: "bus" }, JSON.stringify(settings));
    expect(body).toEqual({ name: "x", tag: "bus", whole: false, settings });
  });

  it("says what is wrong with it", () => {
    expect(() => rolloutOf(CLASS, undefined)).toThrow("nothing of bulk is changed");
    expect(() => rolloutOf({ ...CLASS, weight: "5", stages: "1, ten" }, undefined)).toThrow("the stages are whole numbers");
    expect(() => rolloutOf({ ...CLASS, weight: "5", terminals: " , " }, undefined)).toThrow("whole numbers");
    expect(() => rolloutOf({ name: "x" }, "{")).toThrow("no JSON");
    for (const text of ["[]", "null", "1"]) expect(() => rolloutOf({ name: "x" }, text)).toThrow("`classes`");
  });
});

describe("the stages of a rollout", () => {
  const rollout = (stage: number, counts: Record<string, number>) =>
    stageText({ id: 1, name: "x", state: "running", stage, stages: [1, 10], counts, changed: "2026-01-05T10:00:00Z", revision: 1 });

  it("are those that have terminals", () => {
    expect(rollout(1, { pending: 0, trial: 1 })).toBe("stage 1 of 1");
    expect(rollout(2, { confirmed: 1, sent: 10 })).toBe("stage 2 of 2 (1, the rest)");
    expect(rollout(1, { pending: 11, sent: 1 })).toBe("stage 1 of 3 (1, 10, the rest)");
  });

  it("are no fewer than those that were tried, if terminals were deleted", () => {
    expect(rollout(3, { confirmed: 1 })).toBe("stage 3 of 3");
  });
});

describe("what a rollout would change", () => {
  const KNOWN = [terminal(12, { tags: ["bus"] }), terminal(9, { beam: "west" }), terminal(10, { tags: ["bus", "old"] })];
  const client = () => new Client({ token: "upc_x" }, new ServerClock(), "https://noc.example/");
  const settings = { classes: [{ name: "bulk", weight: 5 }], paths: [] };

  afterEach(() => vi.unstubAllGlobals());

  it("concerns terminals in the rollout's order", () => {
    expect(orderOf({ beam: "east" }, KNOWN)).toEqual([10, 12]);
    expect(orderOf({ tag: "old" }, KNOWN)).toEqual([10]);
    expect(orderOf({ terminals: [12, 9] }, KNOWN)).toEqual([12, 9]);
    expect(orderOf({ beam: "north" }, KNOWN)).toEqual([]);
  });

  it("is asked of the terminal that comes first, and of nobody if none is known", async () => {
    const asked: [string, unknown][] = [];
    const changes = [{ key: "class.bulk.weight", after: 5 }];
    vi.stubGlobal("fetch", async (url: string, init: RequestInit) => {
      asked.push([url, JSON.parse(String(init.body))]);
      return Response.json({ changes, ...(asked.length > 1 && { unreported_paths: ["lte"] }) });
    });
    const body = { name: "x", beam: "east", whole: false, settings };
    expect(await seenOf(client(), body, KNOWN)).toEqual({ body, count: 2, first: { node: 10, changes, unreported: [] } });
    const whole = await seenOf(client(), { ...body, whole: true }, KNOWN);
    expect(whole.first?.unreported).toEqual(["lte"]);
    expect(await seenOf(client(), body, [])).toEqual({ body, count: 0 });
    const path = "https://noc.example/v1/terminals/10/settings/preview";
    expect(asked).toEqual([[`${path}?merged=true`, settings], [path, settings]]);
  });

  it("is not shown of settings that the service refuses", async () => {
    vi.stubGlobal("fetch", async () => Response.json({ detail: "no such member" }, { status: 422 }));
    await expect(seenOf(client(), { name: "x", beam: "east", settings }, KNOWN)).rejects.toThrow(ApiError);
  });

  it("is said in words where nothing is set", () => {
    expect(changeTexts({ key: "class.bulk.policy", after: "migrate" })).toEqual(["class.bulk.policy", "as the node has it", "migrate"]);
    expect(changeTexts({ key: "class.bulk.weight", before: 5, after: null })).toEqual(["class.bulk.weight", "5", "as the node has it"]);
  });
});
