/** Labels at the portals: whose blockage, and how long until. Elements, since their text changes. */

import { type Map as MapLibreMap, Marker } from "maplibre-gl";
import { type Ahead, countdown } from "../fleet/blockage";
import type { Degrees } from "./road-ahead";

export interface Shown {
  node: number;
  name: string;
  at: Degrees;
  ahead: Ahead;
}

/** More labels than this hide each other. */
const MOST = 40;

export class Countdowns {
  private readonly markers = new Map<number, Marker>();

  constructor(private readonly map: MapLibreMap) {}

  /** Shows these, the soonest first, and no others. */
  show(all: Shown[]): void {
    const shown = all.slice(0, MOST);
    const nodes = new Set(shown.map((one) => one.node));
    for (const [node, marker] of this.markers) {
      if (nodes.has(node)) continue;
      marker.remove();
      this.markers.delete(node);
    }
    shown.forEach((one) => this.place(one));
  }

  private place({ node, name, at, ahead }: Shown): void {
    let marker = this.markers.get(node);
    if (!marker) {
      const element = document.createElement("div");
      element.className = "countdown";
      marker = new Marker({ element, anchor: "bottom", offset: [0, -8] }).setLngLat(at).addTo(this.map);
      // MapLibre takes every marker for a button; this one is a label.
      for (const attribute of ["role", "tabindex", "aria-label"]) element.removeAttribute(attribute);
      this.markers.set(node, marker);
    }
    const here = marker.getLngLat();
    if (here.lng !== at[0] || here.lat !== at[1]) marker.setLngLat(at);
    const element = marker.getElement();
    const text = `${name}: ${countdown(ahead)}`;
    // As text: a name is anything that somebody has typed.
    if (element.textContent !== text) element.textContent = text;
  }
}
