/** Figures for people. */

/** "1.25 Mbit/s"; a dash without a value. */
export function bps(value: number | null | undefined): string {
  return scaled(value, "bit/s");
}

/** "3.4 Mbit". */
export function bits(value: number | null | undefined): string {
  return scaled(value, "bit");
}

/** "14.2 kB". */
export function bytes(value: number | null | undefined): string {
  return scaled(value, "B");
}

/** "12.3 s", "4 min 10 s", "3 h 20 min", "12 d 4 h". */
export function seconds(ms: number): string {
  const s = Math.round(Math.abs(ms) / 1000);
  // Rounded first, so that nothing is "-0.0".
  if (s < 120) return `${(Math.round(ms / 100) / 10).toFixed(1)} s`;
  const [large, unit, small, rest] = s < 7200 ? [60, "min", 1, "s"] : s < 172_800 ? [3600, "h", 60, "min"] : [86_400, "d", 3600, "h"];
  return `${ms < 0 ? "-" : ""}${Math.floor(s / large)} ${unit} ${Math.floor((s % large) / small)} ${rest}`;
}

/** A time of day in UTC, with seconds. */
export function utc(ms: number): string {
  return Number.isFinite(ms) ? new Date(ms).toISOString().slice(11, 19) : "–";
}

/** "46 km/h". */
export function speed(mps: number | null | undefined): string {
  return mps === null || mps === undefined ? "–" : `${Math.round(3.6 * mps)} km/h`;
}

function scaled(value: number | null | undefined, of: string): string {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  for (const [from, unit] of UNITS) {
    if (size >= from) return `${Number((value / from).toPrecision(3))} ${unit}${of}`;
  }
  return `${Math.round(value)} ${of}`;
}

const UNITS: [number, string][] = [
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];
