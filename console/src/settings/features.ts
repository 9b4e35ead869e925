import type { Footprint } from "../api/types";

interface Document {
  type?: unknown;
  features?: unknown;
  geometry?: unknown;
}

/** Returns GeoJSON as the service takes maps: each feature on a line of its own. */
export function featureLines(text: string): string {
  const document = JSON.parse(text) as Document | null;
  if (document?.type === "Feature") return `${JSON.stringify(document)}\n`;
  if (document?.type !== "FeatureCollection" || !Array.isArray(document.features)) {
    throw new Error("The file is no GeoJSON with features.");
  }
  return document.features.map((one) => `${JSON.stringify(one)}\n`).join("");
}

/** Returns the area that GeoJSON has: by itself, or as the only feature. What is wrong within it, the service says. */
export function areaOf(text: string): Footprint {
  let document = JSON.parse(text) as Document | null;
  if (document?.type === "FeatureCollection" && Array.isArray(document.features) && document.features.length === 1) {
    document = document.features[0] as Document | null;
  }
  if (document?.type === "Feature") document = document.geometry as Document | null;
  if (document?.type !== "Polygon" && document?.type !== "MultiPolygon") {
    throw new Error("The file has no single area (Polygon or MultiPolygon) of GeoJSON.");
  }
  return document as Footprint;
}

/** So many positions an area has, in all of its rings. */
export function positionsOf(area: Footprint): number {
  const parts = area.type === "Polygon" ? [area.coordinates] : area.coordinates;
  return parts.flat().reduce((sum, ring) => sum + ring.length, 0);
}
