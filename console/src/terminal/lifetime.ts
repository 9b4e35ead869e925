import { instant } from "../shell/dates";

const DAY_MS = 86_400_000;

/** When a certificate ends, and how long that is from now: in days, and on the last one in hours. */
export function lifetime(endMs: number, nowMs: number): string {
  const leftMs = endMs - nowMs;
  const end = instant(endMs);
  if (leftMs <= 0) return `ended ${end}`;
  const days = Math.floor(leftMs / DAY_MS);
  const hours = Math.floor(leftMs / 3_600_000);
  const left = days > 1 ? `${days} days` : hours > 1 ? `${hours} hours` : "less than two hours";
  return `ends ${end}, ${left} left`;
}
