import { describe, expect, it } from "vitest";
import { featureLines } from "../src/settings/features";
import { tagsOf } from "../src/terminal/tags";

describe("settings", () => {
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

  it("reads tags as people type them", () => {
    expect(tagsOf(" a; b,b ;; Night buses")).toEqual(["a", "b", "Night buses"]);
    expect(tagsOf("  ")).toEqual([]);
  });
});
