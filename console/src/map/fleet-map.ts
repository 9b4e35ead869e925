/** The map itself: MapLibre GL, showing the live fleet. */

import "maplibre-gl/dist/maplibre-gl.css";
import {
  type GeoJSONSource,
  Map as MapLibreMap,
  type MapMouseEvent,
  NavigationControl,
  ScaleControl,
  setWorkerUrl,
} from "maplibre-gl";
import workerUrl from "maplibre-gl/dist/maplibre-gl-worker.mjs?url";
import { Rereading } from "../api/rereading";
import type { Beam, Blockage, Footprint, Obstruction, Position } from "../api/types";
import { healthOf, type Vehicle } from "../fleet/fleet";
import { nextBlockage } from "../fleet/blockage";
import { type Live, READ } from "../fleet/live";
import { Countdowns } from "./countdowns";
import { Ground } from "./ground";
import { History, type Span } from "./history";
import { mercator, Motion } from "./motion";
import { onThemeChange, palette, rgb } from "../shell/palette";
import { type Degrees, roadAhead, type RoadAhead } from "./road-ahead";
import { layersOf, SOURCES, styleOf } from "./style";
import { VehiclesLayer } from "./vehicles-layer";

setWorkerUrl(new URL(workerUrl, document.baseURI).href);

/** The order of the colours on the GPU. */
const LOOKS = ["up", "blocked", "down", "silent", "ahead"] as const;
/** A vehicle is amber from this time before its blockage on. */
const SOON_MS = 60_000;
/** At most so many blockages ahead are drawn, the soonest. */
const MOST_AHEAD = 200;
const REFRESH_MS = 250;
/** Below this zoom there would be too many to tell apart. */
const OBSTRUCTIONS_FROM_ZOOM = 7;
/** At most so many of those in view are read. */
const MOST_OBSTRUCTIONS = 3_000;
const AGAIN_MS = 5_000;
const PICK_PX = 16;

type PaintName = Parameters<MapLibreMap["setPaintProperty"]>[1];
type Source = (typeof SOURCES)[number];
type Line = { type: "LineString"; coordinates: Degrees[] };

/** What a user may select on the map besides vehicles. */
export type Place = { obstruction: Obstruction } | { beam: Beam };

export class FleetMap {
  readonly map: MapLibreMap;
  private readonly motion = new Motion(performance.now());
  private readonly layer: VehiclesLayer;
  private readonly countdowns: Countdowns;
  private readonly ground: Ground;
  private readonly obstructions = new Map<string, Obstruction>();
  /** Cached roads ahead, by vehicle, fix and obstruction. */
  private readonly roads = new Map<string, RoadAhead | undefined>();
  /** Reads the obstructions of the newest view, in whatever order answers come. */
  private readonly obstructionsInView: Rereading;
  private readonly ended = new AbortController();
  private readonly timer: number;
  private readonly offTheme: () => void;
  private selected: number | undefined;
  private aheadKey = "";
  private span: Span;
  private history: History | undefined;
  private trackDueAt = -Infinity;
  private hasFitted = false;
  private isLoaded = false;

  constructor(
    container: HTMLElement,
    private readonly live: Live,
    private readonly onSelect: (node: number | undefined) => void,
    private readonly onPlace: (place: Place | undefined) => void,
    onGround: (isThere: boolean) => void,
    /** Told why the selected vehicle's history cannot be read, or undefined. */
    private readonly onHistory: (failure: string | undefined) => void,
    /** Told which obstructions were read for the view; none where it is too far from the ground. */
    private readonly onObstructions: (inView: Obstruction[]) => void,
  ) {
    this.layer = new VehiclesLayer(this.motion, looks());
    this.map = new MapLibreMap({
      container,
      style: styleOf(palette()),
      attributionControl: false,
      center: [0, 30],
      zoom: 2,
      // The camera flies by itself only where the user has asked for it.
      fadeDuration: 0,
      transformRequest: (url) => ({ url, ...(url.startsWith(live.client.base) && { headers: live.client.headers }) }),
    });
    this.map.addControl(new NavigationControl({ visualizePitch: false }));
    this.map.addControl(new ScaleControl());
    this.countdowns = new Countdowns(this.map);
    this.ground = new Ground(this.map, live.client, SOURCES[0], onGround);
    this.obstructionsInView = new Rereading(
      (signal) => this.readObstructions(signal),
      () => void setTimeout(() => this.obstructionsInView.soon(), AGAIN_MS),
    );
    this.map.on("load", () => this.loaded());
    this.map.on("click", (event) => this.clicked(event));
    this.map.on("moveend", () => void this.obstructionsInView.now());
    this.offTheme = onThemeChange(() => this.recolour());
    this.timer = window.setInterval(() => this.refresh(), REFRESH_MS);
    const off = live.listen((event) => {
      if (event.kind === "positions") this.takePositions(event.data.positions as Position[]);
      if (event.kind === "obstructions" || event.kind === READ) this.obstructionsInView.soon();
      if (event.kind === "tiles" || event.kind === READ) void this.readGround();
      if (event.kind === READ) this.drawBeams();
    });
    this.ended.signal.addEventListener("abort", off);
  }

  close(): void {
    this.ended.abort();
    this.obstructionsInView.close();
    this.ground.close();
    clearInterval(this.timer);
    this.offTheme();
    this.layer.close();
    this.map.remove();
  }

  /** Shows a vehicle's history over a span from now on; moves the map there if the vehicle is a new choice. */
  select(node: number | undefined, span: Span): void {
    if (node === this.selected && span === this.span) return;
    const isOther = node !== this.selected;
    this.selected = node;
    this.span = span;
    this.setLines("track", []);
    this.onHistory(undefined);
    const position = node === undefined ? undefined : this.live.fleet.vehicles.get(node)?.position;
    if (position && isOther) {
      const zoom = Math.max(this.map.getZoom(), 12);
      this.map.easeTo({ center: [position.longitude, position.latitude], zoom });
    }
    this.history = node === undefined ? undefined : new History(this.live.client, node, span, this.ended.signal);
    this.trackDueAt = -Infinity;
    this.refresh();
  }

  private loaded(): void {
    this.isLoaded = true;
    this.map.addLayer(this.layer);
    this.drawBeams();
    this.refresh();
    void this.obstructionsInView.now();
    void this.readGround();
  }

  private async readGround(): Promise<void> {
    // Until the map is loaded, it has no layers that the ground could go below.
    if (this.isLoaded) await this.ground.read();
  }

  private takePositions(positions: Position[]): void {
    const now = performance.now();
    for (const one of positions) {
      const place = mercator(one.longitude, one.latitude);
      this.motion.fix(one.terminal, place, one.heading_deg ?? undefined, Date.parse(one.time), now);
    }
    this.layer.drawWithin();
  }

  /** Updates what changes slowly: colours, countdowns, and data that was read anew. */
  private refresh(): void {
    if (document.hidden) return;
    const [now, asOf] = [this.live.now(), this.live.asOf()];
    const { vehicles } = this.live.fleet;
    const ahead: { vehicle: Vehicle; inMs: number }[] = [];
    const [[west, south], [east, north]] = this.map.getBounds().toArray();
    let [inSight, placed] = [0, 0];
    for (const vehicle of vehicles.values()) {
      if (!vehicle.position) continue;
      placed += 1;
      const { longitude, latitude } = vehicle.position;
      if (longitude >= west && longitude <= east && latitude >= south && latitude <= north) inSight += 1;
      // A vehicle on the map gets its new fixes elsewhere.
      if (!this.motion.has(vehicle.node)) this.takePositions([vehicle.position]);
      const next = nextBlockage(vehicle, now);
      if (next) ahead.push({ vehicle, inMs: next.inMs });
      const health = healthOf(vehicle, asOf);
      const soon = health === "up" && next !== undefined && next.inMs < SOON_MS;
      this.motion.look(vehicle.node, LOOKS.indexOf(soon ? "ahead" : health), vehicle.node === this.selected);
    }
    if (this.motion.count > placed) {
      this.motion.keep((node) => vehicles.has(node));
      this.layer.drawWithin();
    }
    this.layer.setInSight(inSight);
    if (this.motion.changed) this.layer.drawWithin();
    this.fit();
    this.readTrackAgain();
    ahead.sort((a, b) => a.inMs - b.inMs);
    this.drawAhead(ahead.slice(0, MOST_AHEAD).map((one) => one.vehicle), now);
  }

  /** Fits the view to the selected vehicle, else to all, once there are any. */
  private fit(): void {
    if (this.hasFitted || !this.map.isStyleLoaded()) return;
    const places = [...this.live.fleet.vehicles.values()].flatMap((one) => one.position ?? []);
    if (places.length === 0) return;
    this.hasFitted = true;
    const selected = places.find((one) => one.terminal === this.selected);
    const shown = selected ? [selected] : places;
    const [east, north] = [Math.max(...shown.map((p) => p.longitude)), Math.max(...shown.map((p) => p.latitude))];
    const [west, south] = [Math.min(...shown.map((p) => p.longitude)), Math.min(...shown.map((p) => p.latitude))];
    this.map.fitBounds([west, south, east, north], { padding: 60, maxZoom: 13, animate: false });
  }

  private drawAhead(vehicles: Vehicle[], nowMs: number): void {
    const lines: { line: Line; properties: Record<string, unknown> }[] = [];
    const shown = [];
    const key = [];
    for (const vehicle of vehicles) {
      const next = nextBlockage(vehicle, nowMs);
      const road = next && this.roadOf(vehicle, next.blockage);
      if (!next || !road) continue;
      const confidence = next.blockage.confidence ?? 1;
      key.push(vehicle.node, vehicle.position?.timeMs, next.blockage.obstruction);
      lines.push({ line: lineOf(road.open), properties: { covered: false, confidence } });
      for (const covered of road.covered) {
        lines.push({ line: lineOf(covered), properties: { covered: true, confidence } });
      }
      shown.push({ node: vehicle.node, name: this.live.fleet.nameOf(vehicle.node), at: road.portal, ahead: next });
    }
    this.countdowns.show(shown);
    // Only fixes change the lines, and each change makes the map build a tile.
    if (key.join() !== this.aheadKey && this.setLines("ahead", lines)) this.aheadKey = key.join();
  }

  private roadOf(vehicle: Vehicle, blockage: Blockage): RoadAhead | undefined {
    const obstruction = this.obstructions.get(blockage.obstruction ?? "");
    const { position } = vehicle;
    if (!obstruction || !position) return undefined;
    const key = `${vehicle.node} ${position.timeMs} ${obstruction.id}`;
    if (!this.roads.has(key)) {
      if (this.roads.size > 4 * MOST_AHEAD) this.roads.clear();
      this.roads.set(key, roadAhead(obstruction, [position.longitude, position.latitude]));
    }
    return this.roads.get(key);
  }

  private async readObstructions(signal: AbortSignal): Promise<void> {
    // Those of an earlier view stay drawn, small; which of them are in view is not known.
    if (this.map.getZoom() < OBSTRUCTIONS_FROM_ZOOM) return this.onObstructions([]);
    const bounds = this.map.getBounds();
    const sides = [
      Math.max(-180, bounds.getWest()), Math.max(-90, bounds.getSouth()),
      Math.min(180, bounds.getEast()), Math.min(90, bounds.getNorth()),
    ];
    const path = `v1/obstructions?bbox=${sides.join(",")}`;
    const found = await this.live.client.all<Obstruction>(path, "features", signal, MOST_OBSTRUCTIONS);
    if (signal.aborted) return;
    this.obstructions.clear();
    this.roads.clear();
    found.forEach((one) => this.obstructions.set(one.id, one));
    this.onObstructions([...this.obstructions.values()]);
    this.drawObstructions();
  }

  private drawObstructions(): void {
    const roads = new Map<string, Degrees[]>();
    const features = [];
    for (const one of this.obstructions.values()) {
      const { source } = one.properties;
      const certainty = one.properties.corrected ?? one.properties.certainty;
      features.push({ type: "Feature" as const, geometry: one.geometry, properties: { certainty, source, id: one.id } });
      for (const road of one.properties.roads ?? []) {
        if (road.covered_by === null) roads.set(road.id, road.line);
      }
    }
    this.source("obstructions")?.setData({ type: "FeatureCollection", features });
    this.setLines("roads", [...roads.values()].map((line) => ({ line: lineOf(line), properties: {} })));
  }

  private drawBeams(): void {
    const features = [];
    for (const { id, name, footprint } of this.live.fleet.beams.values()) {
      if (footprint) features.push({ type: "Feature" as const, geometry: footprint as Footprint, properties: { id, name } });
    }
    this.source("beams")?.setData({ type: "FeatureCollection", features });
  }

  private readTrackAgain(): void {
    const now = performance.now();
    if (!this.history || now < this.trackDueAt) return;
    this.trackDueAt = Infinity;
    void this.readTrack(this.history);
  }

  private async readTrack(history: History): Promise<void> {
    let failure: string | undefined;
    try {
      const parts = await history.read(this.live.now());
      if (history !== this.history) return;
      this.setLines("track", parts.map(({ blocked, line }) => ({ line: lineOf(line), properties: { blocked } })));
    } catch (error) {
      failure = error instanceof Error ? error.message : String(error);
    }
    if (history !== this.history || this.ended.signal.aborted) return;
    this.onHistory(failure);
    this.trackDueAt = performance.now() + history.everyMs;
  }

  private clicked(event: MapMouseEvent): void {
    const node = this.nearest(event.point.x, event.point.y);
    this.onSelect(node);
    if (node !== undefined) return;
    const layers = ["tunnels", "learned", "areas", "beams"];
    // MapLibre lists the topmost feature first.
    const [hit] = this.map.queryRenderedFeatures(event.point, { layers });
    const id = String(hit?.properties.id);
    const obstruction = this.obstructions.get(id);
    const beam = this.live.fleet.beams.get(id);
    if (hit?.layer.id === "beams") this.onPlace(beam && { beam });
    else this.onPlace(obstruction && { obstruction });
  }

  private nearest(x: number, y: number): number | undefined {
    const bounds = this.map.getBounds();
    let [best, least]: [number | undefined, number] = [undefined, PICK_PX];
    for (const { node, position } of this.live.fleet.vehicles.values()) {
      if (!position || !bounds.contains([position.longitude, position.latitude])) continue;
      const at = this.map.project([position.longitude, position.latitude]);
      const far = Math.hypot(at.x - x, at.y - y);
      if (far < least) [best, least] = [node, far];
    }
    return best;
  }

  private recolour(): void {
    for (const layer of [...layersOf(palette()), ...this.ground.layers()]) {
      for (const [name, value] of Object.entries(layer.paint ?? {})) {
        this.map.setPaintProperty(layer.id, name as PaintName, value);
      }
    }
    this.layer.setColours(looks());
  }

  private source(name: Source): GeoJSONSource | undefined {
    return this.map.getSource<GeoJSONSource>(name);
  }

  private setLines(name: Source, lines: { line: Line; properties: Record<string, unknown> }[]): boolean {
    const source = this.source(name);
    const features = lines.map(({ line, properties }) => ({ type: "Feature" as const, geometry: line, properties }));
    source?.setData({ type: "FeatureCollection", features });
    return source !== undefined;
  }
}

function lineOf(coordinates: Degrees[]): Line {
  return { type: "LineString", coordinates };
}

function looks(): { states: number[]; rim: number[] } {
  const colours = palette();
  return { states: LOOKS.flatMap((name) => rgb(colours[name])), rim: rgb(colours.text) };
}
