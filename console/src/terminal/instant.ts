/** A moment, UTC, to the second: "2026-11-26 15:30:00 UTC". */
export function instant(ms: number): string {
  return Number.isFinite(ms) ? `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC` : "–";
}
