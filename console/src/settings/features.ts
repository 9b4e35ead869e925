/** Returns GeoJSON as the service takes maps: each feature on a line of its own. */
export function featureLines(text: string): string {
  const document = JSON.parse(text) as { type?: unknown; features?: unknown } | null;
  if (document?.type === "Feature") return `${JSON.stringify(document)}\n`;
  if (document?.type !== "FeatureCollection" || !Array.isArray(document.features)) {
    throw new Error("The file is no GeoJSON with features.");
  }
  return document.features.map((one) => `${JSON.stringify(one)}\n`).join("");
}
