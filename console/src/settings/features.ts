import type { Footprint } from "../api/types";

interface Document {
  type?: unknown;
  features?: unknown;
  geometry?: unknown;
}

/** Returns GeoJSON in the form that the service accepts for maps: one feature per line. */
export function featureLines(text: string): string {
  const document = JSON.parse(text) as Document | null;
  if (document?.type === "Feature") return `${JSON.stringify(document)}\n`;
  if (document?.type !== "FeatureCollection" || !Array.isArray(document.features)) {
    throw new Error("The file is no GeoJSON with features.");
  }
  return document.features.map((one) => `${JSON.stringify(one)}\n`).join("");
}

/** Returns a GeoJSON file's area: the document itself, or its only feature. The service checks the rest. */
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

/** Counts the positions of an area, in all of its rings. */
export function positionsOf(area: Footprint): number {
  const parts = area.type === "Polygon" ? [area.coordinates] : area.coordinates;
  return parts.flat().reduce((sum, ring) => sum + ring.length, 0);
}
