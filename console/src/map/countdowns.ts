/** Labels at the portals: whose blockage, and how long until it. They are elements, as their text changes. */

import { type Map as MapLibreMap, Marker } from "maplibre-gl";
import { type Ahead, countdown } from "../fleet/blockage";
import type { Degrees } from "./road-ahead";

export interface Shown {
  node: number;
  name: string;
  at: Degrees;
  ahead: Ahead;
}

/** More labels than this would hide each other. */
const MOST = 40;

export class Countdowns {
  private readonly markers = new Map<number, Marker>();

  constructor(private readonly map: MapLibreMap) {}

  /** Shows these and no others; the soonest come first. */
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
      // MapLibre gives every marker a button's role; this one is a label.
      for (const attribute of ["role", "tabindex", "aria-label"]) element.removeAttribute(attribute);
      this.markers.set(node, marker);
    }
    const here = marker.getLngLat();
    if (here.lng !== at[0] || here.lat !== at[1]) marker.setLngLat(at);
    const element = marker.getElement();
    const text = `${name}: ${countdown(ahead)}`;
    // Set as text: a name may contain anything.
    if (element.textContent !== text) element.textContent = text;
  }
}
