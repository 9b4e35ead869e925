import { describe, expect, it } from "vitest";
import { ApiError, type Client } from "../src/api/client";
import { fieldErrors, namesOf, PARTS, rolloutFor } from "../src/settings/one-setting";
import { editOf, withSetting } from "../src/settings/setting-document";
import { boundsOf, CLASS_SETTINGS, FieldError, fieldOf, PATH_SETTINGS, type Setting, valueOf } from "../src/settings/setting-schema";
import { link, terminal } from "./made";

const [CLASSES, PATHS] = PARTS;

function setting(key: string): Setting {
  const found = [...CLASS_SETTINGS, ...PATH_SETTINGS].find((one) => one.key === key);
  if (!found) throw new Error(`there is no setting ${key}`);
  return found;
}

describe("a setting's value", () => {
  it("is in the service's unit", () => {
    expect(valueOf(setting("weight"), { weight: "5" })).toBe(5);
    expect(valueOf(setting("send_rate_bps"), { send_rate_bps: "0.3" })).toBe(300_000);
    expect(valueOf(setting("direction"), { direction: "receive" })).toBe("receive");
    expect(valueOf(setting("paths"), { paths: " lte, satellite," })).toEqual(["lte", "satellite"]);
  });

  it("has of a table what is filled in", () => {
    const fields = { "meter/budget_bytes": "2.5", "meter/period": "month", weight: "7" };
    expect(valueOf(setting("meter"), fields)).toEqual({ budget_bytes: 2_500_000_000, period: "month" });
    expect(valueOf(setting("on_demand"), { "on_demand/neighbour_asks": "no" })).toEqual({ neighbour_asks: false });
    expect(valueOf(setting("migrate"), { "migrate/loss": "0.05" })).toEqual({ loss: 0.05 });
  });

  it("is missed at its field", () => {
    const missing = (of: Setting, fields: Record<string, string>) => {
      try {
        valueOf(of, fields);
      } catch (error) {
        if (error instanceof FieldError) return error.field;
      }
      return undefined;
    };
    expect(missing(setting("weight"), {})).toBe("weight");
    expect(missing(setting("meter"), {})).toBe("meter/budget_bytes");
    expect(missing(setting("paths"), { paths: " , " })).toBe("paths");
  });

  it("has the service's bounds in the unit that is typed", () => {
    const [rate] = setting("send_rate_bps").members;
    if (rate?.input.kind !== "number") throw new Error("a rate is a number");
    expect(boundsOf(rate.input)).toEqual({ min: "0.008", max: "100000", step: "any" });
  });
});

describe("a rollout of one setting", () => {
  const bus = terminal(12, { tags: ["bus"] });
  const known = [terminal(13, { tags: ["bus"] }), terminal(9, { beam: "west", tags: ["bus"] }), terminal(11), bus];
  const chosen = { place: CLASSES, setting: setting("weight") };
  const fields = { name: "bulk", weight: "5" };

  it("is laid over what else is set, and is for one terminal", () => {
    expect(rolloutFor(bus, { ...chosen, who: "this" }, fields, known)).toEqual({
      name: "class bulk: weight", whole: false, terminals: [12],
      settings: { classes: [{ name: "bulk", weight: 5 }], paths: [] },
    });
    const path = rolloutFor(bus, { place: PATHS, setting: setting("rtt_ms"), who: "this" }, { name: "lte", rtt_ms: "70" }, known);
    expect(path.settings).toEqual({ classes: [], paths: [{ name: "lte", rtt_ms: 70 }] });
  });

  it("begins with the terminal that it was made for", () => {
    const of = (who: "numbers" | "tag" | "beam", more: Record<string, string>) =>
      rolloutFor(bus, { ...chosen, who }, { ...fields, ...more }, known);
    expect(of("numbers", { terminals: "10 11, 12", stages: "1, 2", hold_s: "60" })).toMatchObject({
      terminals: [12, 10, 11], stages: [1, 2], hold_s: 60,
    });
    expect(of("tag", { tag: "bus" }).terminals).toEqual([12, 9, 13]);
    expect(of("beam", {}).terminals).toEqual([12, 11, 13]);
  });

  it("says at which field it is wrong", () => {
    const wrong = (more: Record<string, string>) => () => rolloutFor(bus, { ...chosen, who: "numbers" }, { ...fields, ...more }, known);
    expect(wrong({ terminals: "ten" })).toThrow(new FieldError("terminals", "the terminals' numbers are whole numbers, such as 1, 10"));
    expect(wrong({ terminals: "10", stages: "," })).toThrow(FieldError);
    const many = Array.from({ length: 10_001 }, (_, place) => terminal(100 + place));
    expect(() => rolloutFor(bus, { ...chosen, who: "beam" }, fields, many)).toThrow("10002 terminals");
  });
});

describe("the service's errors", () => {
  const refused = (...flaws: [string, string][]) =>
    new ApiError("not as it should be", 422, 0, flaws.map(([pointer, detail]) => ({ pointer, detail })));

  it("are shown at the fields that they are about", () => {
    const meter = setting("meter");
    const error = refused(["/paths/0/meter/first_day", "too large"], ["/settings/paths/0/name", "too long"], ["/stages/1", "too small"]);
    expect(fieldErrors(error, meter)).toEqual({ "meter/first_day": "too large", name: "too long", stages: "too small" });
    expect(fieldErrors(refused(["/classes/0/paths/1", "empty"]), setting("paths"))).toEqual({ paths: "empty" });
    expect(fieldErrors(refused(["/terminals/0", "no number"], ["/", "odd"]), meter)).toEqual({ terminals: "no number" });
  });
});

describe("a document of settings", () => {
  const before = { classes: [{ name: "bulk", weight: 5, policy: "bonded" }], paths: [], terminals: [{ node: 10, weight: 2 }] };

  it("has one setting changed, and all others as they were", () => {
    expect(withSetting(before, { list: "classes", id: "bulk" }, "weight", 6)).toEqual({
      ...before, classes: [{ name: "bulk", weight: 6, policy: "bonded" }],
    });
    expect(withSetting(before, { list: "terminals", id: 11 }, "weight", 3)).toEqual({
      ...before, terminals: [{ node: 10, weight: 2 }, { node: 11, weight: 3 }],
    });
    expect(withSetting({ classes: [], paths: [] }, { list: "paths", id: "lte" }, "rtt_ms", 70)).toEqual({
      classes: [], paths: [{ name: "lte", rtt_ms: 70 }],
    });
  });

  it("says nothing of what is taken away", () => {
    expect(withSetting(before, { list: "classes", id: "bulk" }, "weight")).toEqual({
      ...before, classes: [{ name: "bulk", policy: "bonded" }],
    });
    expect(withSetting(before, { list: "terminals", id: 10 }, "weight").terminals).toEqual([]);
    expect(before.classes[0]?.weight).toBe(5);
  });

  it("is changed as it was read, also where nothing was set", async () => {
    const edit = (open: () => Promise<Response>) => {
      const client = { open, post: async () => ({ changes: [] }) } as unknown as Client;
      return editOf(client, "v1/gateways/1/settings", (document) => document);
    };
    const set = { classes: [], paths: [], terminals: [{ node: 10, weight: 2 }] };
    const read = async () => Response.json({ ...set, state: "applied" }, { headers: { ETag: '"7"' } });
    expect(await edit(read)).toEqual({ body: set, revision: 7, changes: [] });
    const nothing = () => Promise.reject(new ApiError("nothing is set", 404, 0));
    // Whoever sets something first is not overwritten.
    expect(await edit(nothing)).toEqual({ body: { classes: [], paths: [] }, revision: 0, changes: [] });
  });
});

describe("the known names", () => {
  it("are those that the terminal reports of what it sends", () => {
    const figures = {
      queue_ms: 0, loss: 0, stored_bundles: 0, stored_bytes: 0,
      classes: [{ name: "bulk", backlogged_bytes: 0 }],
      other_paths: [{ path: "lte", state: "up" as const, sent_bytes: 0 }],
    };
    expect(namesOf(link(11, 1, { link: "return", figures }))).toEqual({ classes: ["bulk"], paths: ["satellite", "lte"] });
    expect(namesOf(undefined)).toEqual({ classes: [], paths: [] });
  });
});

it("has one field for each member", () => {
  for (const { settings } of PARTS) {
    const fields = settings.flatMap((one) => one.members.map((member) => fieldOf(one, member)));
    expect(new Set(fields).size).toBe(fields.length);
  }
});
