// What figures are called: text from numbers, without the document and without a clock.

/** @typedef {{entry: string, exit: string}} Planned */
/**
 * @typedef {object} Link
 * @property {string | null} blocked_by
 * @property {number | null} blocked_s
 * @property {number | null} silence_s
 * @property {Planned[]} planned
 * @property {boolean} plan_contradicted
 */

/** @param {number} value @param {string} unit */
function scaled(value, unit) {
  for (const prefix of ["", "k", "M", "G"]) {
    // 999.95 would be shown as 1000.0: the next unit takes it.
    if (value < 999.95) return `${value.toFixed(prefix === "" ? 0 : 1)} ${prefix}${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} T${unit}`;
}

/** @param {number} bps bit/s */
export const rate = (bps) => scaled(bps, "bit/s");

/** @param {number} bytes */
export const size = (bytes) => scaled(bytes, "B");

/** A duration in its two largest units. @param {number} seconds */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/**
 * When the blockage ends that is in force, or the next one begins; null if none is known.
 * @param {boolean} blocked
 * @param {Link} link
 * @param {number} now_ms the node's time since the Unix epoch, ms
 */
export function expected(blocked, link, now_ms) {
  const ahead = link.planned
    .map(({ entry, exit }) => ({ entry_ms: Date.parse(entry), exit_ms: Date.parse(exit) }))
    .find(({ exit_ms }) => now_ms < exit_ms);
  const until = (/** @type {number} */ time_ms) => span((time_ms - now_ms) / 1000);
  const inside = ahead !== undefined && ahead.entry_ms <= now_ms;
  if (inside && link.plan_contradicted) return "the peer is heard in a planned blockage";
  if (blocked) return inside ? `ends in ${until(ahead.exit_ms)}` : "its end is not known";
  if (ahead === undefined) return null;
  if (inside) return `now, for ${until(ahead.exit_ms)}`;
  return `in ${until(ahead.entry_ms)}, for ${span((ahead.exit_ms - ahead.entry_ms) / 1000)}`;
}
