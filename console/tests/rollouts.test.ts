import { describe, expect, it } from "vitest";
import { rolloutOf } from "../src/settings/rollout-text";

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
