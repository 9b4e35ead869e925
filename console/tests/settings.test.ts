import { describe, expect, it } from "vitest";
import { areaOf, featureLines, positionsOf } from "../src/settings/features";
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
