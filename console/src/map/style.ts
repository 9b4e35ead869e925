/** The map's style: the service's own data on a plain ground. Nothing is loaded from elsewhere. */

import type { LayerSpecification, StyleSpecification } from "maplibre-gl";
import type { Palette } from "../shell/palette";

const EMPTY = { type: "FeatureCollection" as const, features: [] };

/** Sources that are filled as the fleet moves. */
export const SOURCES = ["beams", "roads", "obstructions", "track", "ahead"] as const;

export function styleOf(colours: Palette): StyleSpecification {
  const sources = Object.fromEntries(
    SOURCES.map((name) => [name, { type: "geojson" as const, data: EMPTY }]),
  );
  return { version: 8, sources, layers: layersOf(colours) };
}

export function layersOf(colours: Palette): LayerSpecification[] {
  const round = { "line-cap": "round", "line-join": "round" } as const;
  const learned: ["==", ["get", string], string] = ["==", ["get", "source"], "learned"];
  return [
    { id: "ground", type: "background", paint: { "background-color": colours.ground } },
    // Beams differ by edge and name: a colour of their own could be taken for a state's.
    {
      id: "beams",
      type: "fill",
      source: "beams",
      paint: { "fill-color": colours.accent, "fill-opacity": 0.05, "fill-antialias": false },
    },
    {
      id: "beam edges",
      type: "line",
      source: "beams",
      paint: { "line-color": colours.accent, "line-width": 1.5, "line-dasharray": [3, 2], "line-opacity": 0.7 },
    },
    {
      id: "beam names",
      type: "symbol",
      source: "beams",
      layout: { "text-field": ["get", "name"], "text-size": 13, "text-max-width": 12 },
      paint: { "text-color": colours.accent, "text-halo-color": colours.ground, "text-halo-width": 1.5 },
    },
    {
      id: "roads",
      type: "line",
      source: "roads",
      layout: round,
      paint: { "line-color": colours.line, "line-width": ["interpolate", ["linear"], ["zoom"], 8, 1, 15, 5] },
    },
    {
      id: "areas",
      type: "fill",
      source: "obstructions",
      filter: ["==", ["geometry-type"], "Polygon"],
      paint: { "fill-color": colours.quiet, "fill-opacity": ["*", 0.4, ["get", "certainty"]] },
    },
    {
      id: "tunnels",
      type: "line",
      source: "obstructions",
      filter: ["!", learned],
      layout: round,
      paint: {
        "line-color": colours.quiet,
        "line-width": ["interpolate", ["linear"], ["zoom"], 8, 2, 15, 9],
        "line-opacity": ["max", 0.3, ["get", "certainty"]],
      },
    },
    {
      id: "learned",
      type: "line",
      source: "obstructions",
      filter: learned,
      paint: {
        "line-color": colours.ahead,
        "line-width": ["interpolate", ["linear"], ["zoom"], 8, 2, 15, 7],
        "line-dasharray": [1, 1],
        "line-opacity": ["max", 0.3, ["get", "certainty"]],
      },
    },
    {
      id: "track",
      type: "line",
      source: "track",
      layout: round,
      paint: {
        "line-color": ["case", ["get", "blocked"], colours.blocked, colours.accent],
        "line-width": 3,
        "line-opacity": 0.8,
      },
    },
    {
      id: "ahead",
      type: "line",
      source: "ahead",
      paint: {
        "line-color": ["case", ["get", "covered"], colours.blocked, colours.ahead],
        "line-width": ["interpolate", ["linear"], ["zoom"], 8, 2, 15, 6],
        "line-opacity": ["max", 0.35, ["get", "confidence"]],
      },
    },
  ];
}
