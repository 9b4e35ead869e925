import { afterEach, describe, expect, it, vi } from "vitest";
import { Client } from "../src/api/client";
import { readToChange } from "../src/api/revised";
import { ServerClock } from "../src/clock/server-clock";
import { commandOf, filledIn, namesIn, stateOf } from "../src/settings/enrolment-text";
import { areaOf, featureLines, positionsOf } from "../src/settings/features";
import { tagsOf } from "../src/terminal/tags";

afterEach(() => vi.unstubAllGlobals());

describe("settings", () => {
  it("changes a beam that it was read as, whatever a proxy makes of its ETag", async () => {
    const client = new Client({ token: "upc_x" }, new ServerClock(), "https://noc.example/");
    for (const etag of ['"5"', 'W/"5"']) {
      vi.stubGlobal("fetch", async () => Response.json({ id: "west" }, { headers: { ETag: etag } }));
      expect(await readToChange(client, "v1/beams/west")).toEqual({ value: { id: "west" }, revision: 5 });
    }
  });

  it("gives each feature a line, whatever line ends are in its names", () => {
    const one = { type: "Feature", properties: { name: "a\nb" } };
    const text = JSON.stringify({ type: "FeatureCollection", features: [one, one] }, null, 2);
    const lines = featureLines(text).split("\n");
    expect(lines).toHaveLength(3);
    expect(JSON.parse(lines[1]!)).toEqual(one);
    expect(featureLines(JSON.stringify(one))).toBe(`${JSON.stringify(one)}\n`);
  });

  it("says what is no map", () => {
    for (const text of ["", "{", "[]", "{}", '{"type": "FeatureCollection"}', "null"]) {
      expect(() => featureLines(text)).toThrow();
    }
  });

  it("takes the one area of a file, by itself or as a feature", () => {
    const ring = [[7, 46], [8, 46], [8, 47], [7, 46]];
    const area = { type: "Polygon", coordinates: [ring] };
    const feature = { type: "Feature", properties: {}, geometry: area };
    for (const one of [area, feature, { type: "FeatureCollection", features: [feature] }]) {
      expect(areaOf(JSON.stringify(one))).toEqual(area);
    }
    expect(positionsOf(areaOf(JSON.stringify({ type: "MultiPolygon", coordinates: [[ring], [ring, ring]] })))).toBe(12);
    const two = { type: "FeatureCollection", features: [feature, feature] };
    const line = { type: "Feature", geometry: { type: "LineString", coordinates: ring } };
    for (const none of [two, line, { type: "FeatureCollection", features: [] }, [], null]) {
      expect(() => areaOf(JSON.stringify(none))).toThrow();
    }
  });

  it("reads tags as people type them", () => {
    expect(tagsOf(" a; b,b ;; Night buses")).toEqual(["a", "b", "Night buses"]);
    expect(tagsOf("  ")).toEqual([]);
  });
});

describe("an enrolment", () => {
  const template = 'number = ${node}\nremote = "${host}:$port" # $$5, ${HOST_2} ${host}\n';

  it("has its template's names filled in, as the command line does it", () => {
    expect(namesIn(template)).toEqual(["host", "port", "HOST_2"]);
    const values = { node: "10", host: "hub.example", port: "4556", HOST_2: "[fe80::1]" };
    expect(filledIn(template, values)).toBe('number = 10\nremote = "hub.example:4556" # $5, [fe80::1] hub.example\n');
    expect(namesIn("a = 1")).toEqual([]);
  });

  it("says what is wrong with template and values", () => {
    expect(() => filledIn("${node} ${port}", { node: "1" })).toThrow(/no value for port/);
    expect(() => filledIn("costs 5 $", {})).toThrow(/\$\$ stands for a \$/);
    expect(() => filledIn("${a-b}", { a: "1" })).toThrow(/\$\$/);
    // A value cannot end a string, and properties that every object inherits are no values.
    for (const value of ['"', "'", "a\nb = 1", "\\", "\0"]) expect(() => filledIn("$x", { x: value })).toThrow(/refused/);
    expect(() => filledIn("$constructor", {})).toThrow(/no value/);
    expect(filledIn("$x", { x: "$node $$" })).toBe("$node $$");
  });

  it("is a command that nothing in the address adds to", () => {
    const { command, needsUrl } = commandOf("https://noc.example:8470/", "upe_AQ");
    expect([command, needsUrl]).toEqual(["underpass enroll https://noc.example:8470 --token upe_AQ", false]);
    expect(commandOf("https://[::1]:8470/", "upe_AQ").needsUrl).toBe(false);
    for (const base of ["http://noc.example/", "https://noc.example/;reboot/", "https://noc.example/$(id)/", "https://a.example/a b/"]) {
      expect(commandOf(base, "upe_AQ")).toEqual({ command: "underpass enroll https://ADDRESS --token upe_AQ", needsUrl: true });
    }
  });

  it("waits until it is used, withdrawn or expired", () => {
    const one = { id: 1, node: 10, created: "2026-11-25T16:00:00Z", expires: "2026-11-26T16:00:00Z" };
    const now = Date.parse("2026-11-25T17:00:00Z");
    expect(stateOf(one, now)).toBe("waiting");
    expect(stateOf(one, now + 86_400_000)).toBe("expired");
    const used = { ...one, used: "2026-11-25T16:30:00Z" };
    expect(stateOf(used, now + 86_400_000)).toBe("used");
    expect(stateOf({ ...used, revoked: "2026-11-25T16:40:00Z" }, now)).toBe("withdrawn");
  });
});
