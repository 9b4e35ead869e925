/** Times with their dates, in UTC; the first page needs no dates. */

/** "2026-11-26 15:30:00". */
export function dated(ms: number): string {
  return Number.isFinite(ms) ? new Date(ms).toISOString().slice(0, 19).replace("T", " ") : "–";
}

/** "2026-11-26 15:30:00 UTC". */
export function instant(ms: number): string {
  return Number.isFinite(ms) ? `${dated(ms)} UTC` : "–";
}

/** A time of day, with its date if that is not today. */
export function utcOn(ms: number, nowMs: number): string {
  const text = dated(ms);
  return text.slice(0, 10) === dated(nowMs).slice(0, 10) ? text.slice(11) : text;
}
