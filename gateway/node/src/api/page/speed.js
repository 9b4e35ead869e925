// The speed test's part of the page.

import { rate } from "./figures.js";

/**
 * @typedef {object} RoundTrips
 * @property {number} least_ms
 * @property {number} median_ms
 * @property {number} most_ms
 */
/**
 * @typedef {object} Loaded
 * @property {number | null} bps
 * @property {RoundTrips | null} round_trips
 */
/**
 * @typedef {object} Report
 * @property {"idle" | "down" | "up" | "done" | "failed"} state
 * @property {string} began
 * @property {string} class
 * @property {number} seconds
 * @property {RoundTrips | null} idle
 * @property {Loaded | null} down
 * @property {Loaded | null} up
 * @property {string | null} failure
 */

/** @param {Report} report */
export function isRunning(report) {
  return report.state !== "done" && report.state !== "failed";
}

/** @param {Report} report */
export function said(report) {
  switch (report.state) {
    case "idle":
      return "Round trip of the idle hop …";
    case "down":
      return `Download, ${report.seconds} s …`;
    case "up":
      return `Upload, ${report.seconds} s …`;
    case "done":
      return `Class ${report.class}, begun ${new Date(report.began).toLocaleTimeString()}`;
    case "failed":
      return `Not finished: ${report.failure ?? ""}`;
  }
}

/**
 * The table's rows: texts of their cells.
 * @param {Report} report
 */
export function rows(report) {
  const ms = (/** @type {number | undefined} */ value) =>
    value === undefined ? "-" : `${value.toFixed(0)} ms`;
  /** @type {(name: string, bps: string, taken: RoundTrips | null) => string[]} */
  const row = (name, bps, taken) => [
    name,
    bps,
    ms(taken?.median_ms),
    ms(taken?.least_ms),
    ms(taken?.most_ms),
  ];
  const made = [];
  if (report.idle) made.push(row("none", "-", report.idle));
  for (const [name, loaded] of /** @type {const} */ ([
    ["download", report.down],
    ["upload", report.up],
  ])) {
    if (loaded) made.push(row(name, rate(loaded.bps ?? 0), loaded.round_trips));
  }
  return made;
}
