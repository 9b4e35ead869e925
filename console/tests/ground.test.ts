import { createPropertyExpression, latest, type StylePropertySpecification, validateStyleMin } from "@maplibre/maplibre-gl-style-spec";
import { describe, expect, test } from "vitest";
import { type GroundColours, layersOfGround, sourceOf } from "../src/map/ground";

const COLOURS: GroundColours = {
  ground: "rgb(0, 0, 0)", water: "rgb(1, 1, 1)", forest: "rgb(2, 2, 2)", built: "rgb(3, 3, 3)",
  road: "rgb(4, 4, 4)", rail: "rgb(5, 5, 5)", place: "rgb(6, 6, 6)",
};
const TILES = { id: 7, from_zoom: 4, to_zoom: 13, bounds: [-31, 45, -29, 47] as [number, number, number, number] };

describe("the ground", () => {
  test("a map's name is escaped in the address of its tiles, and the set is in it", () => {
    const source = sourceOf("http://x/console/", { source: "a/b?c <d>", tiles: TILES });
    expect(source.tiles).toEqual(["http://x/console/v1/maps/a%2Fb%3Fc%20%3Cd%3E/tiles/{z}/{x}/{y}?tileset=7"]);
    expect([source.minzoom, source.maxzoom, source.bounds]).toEqual([4, 13, [-31, 45, -29, 47]]);
  });

  test("what lies lower of all maps is below what lies higher of any", () => {
    const ids = layersOfGround(["ground 1", "ground 2"], COLOURS).map((layer) => layer.id);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.indexOf("ground 2 land")).toBeLessThan(ids.indexOf("ground 1 lakes"));
    expect(ids.indexOf("ground 2 roads")).toBeLessThan(ids.indexOf("ground 1 places"));
    expect(layersOfGround([], COLOURS)).toEqual([]);
  });

  test("the layers are what MapLibre's specification allows, and ask for no file", () => {
    const style = {
      version: 8 as const,
      sources: { "ground 7": sourceOf("http://x/", { source: "a", tiles: TILES }) },
      layers: layersOfGround(["ground 7"], COLOURS),
    };
    expect(validateStyleMin(style)).toEqual([]);
    expect(JSON.stringify(style)).not.toMatch(/glyphs|sprite|icon-image/);
    expect(latest.$version).toBe(8);
  });

  test("every kind of road grows with the zoom, and motorways are the widest", () => {
    const roads = layersOfGround(["a"], COLOURS).find((layer) => layer.id === "a roads");
    if (roads?.type !== "line") throw new Error("there are no roads");
    const spec = latest.paint_line["line-width"] as StylePropertySpecification;
    const width = createPropertyExpression(roads.paint?.["line-width"], "line-width", spec);
    if (width.result === "error") throw new Error("its width is no expression");
    const at = (zoom: number, kind: string) =>
      width.value.evaluate({ zoom }, { type: 2, properties: { class: kind } }) as number;
    for (const kind of ["motorway", "main", "secondary", "minor"]) expect(at(14, kind)).toBeGreaterThan(at(9, kind));
    expect(at(12, "motorway")).toBeGreaterThan(at(12, "minor"));
  });
});
