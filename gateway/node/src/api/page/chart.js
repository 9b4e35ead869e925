// The throughput of streams as two curves, as this node sees their directions.

import { rate, span } from "./figures.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600;
const HEIGHT = 100;

/** @param {string} name @param {Record<string, string>} attributes */
function drawn(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** @param {string} className @param {string} text */
function said(className, text) {
  const element = document.createElement("span");
  element.className = className;
  element.textContent = text;
  return element;
}

/**
 * A figure of both directions, the newest on the right.
 * @param {number[]} sent_bps the oldest first
 * @param {number[]} received_bps the same
 * @param {number} interval_s between two of them
 * @param {number} kept how many there are at most
 */
export function chart(sent_bps, received_bps, interval_s, kept) {
  const most = Math.max(1, ...sent_bps, ...received_bps);
  const figure = document.createElement("figure");
  const svg = drawn("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": `Throughput of the last ${span(kept * interval_s)}, at most ${rate(most)}`,
  });
  for (const [name, curve] of /** @type {const} */ ([["sent", sent_bps], ["received", received_bps]])) {
    const points = curve.map((bps, place) => {
      const x = WIDTH * (1 - (curve.length - 1 - place) / Math.max(1, kept - 1));
      const y = HEIGHT - 2 - (HEIGHT - 4) * (bps / most);
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    });
    svg.append(drawn("polyline", { class: name, points: points.join(" ") }));
  }
  const caption = document.createElement("figcaption");
  caption.append(
    said("sent", `- - sent in streams ${rate(sent_bps.at(-1) ?? 0)}`),
    said("received", `— received in streams ${rate(received_bps.at(-1) ?? 0)}`),
    said("", `at most ${rate(most)} in ${span(kept * interval_s)}`),
  );
  figure.append(svg, caption);
  return figure;
}
