/** The ground of the map: vector tiles that the service has made of imported maps, below all else. */

import type {
  ExpressionSpecification,
  FilterSpecification,
  LayerSpecification,
  Map as MapLibreMap,
  PropertyValueSpecification,
  VectorSourceSpecification,
} from "maplibre-gl";
import type { Client } from "../api/client";
import { coloursOf } from "../shell/palette";

/** A map as the service lists it; `tiles` only if it has any. */
export interface MapOfService {
  source: string;
  tiles?: Tileset;
}

export interface Tileset {
  /** Changes with the tiles. */
  id: number;
  from_zoom: number;
  to_zoom: number;
  /** West, south, east, north. */
  bounds: [number, number, number, number];
}

const NAMES = ["ground", "water", "forest", "built", "road", "rail", "place"] as const;
export type GroundColours = Record<(typeof NAMES)[number], string>;

type Kind = "land" | "lakes" | "rivers" | "rail" | "tunnels" | "roads" | "places";
/** From the bottom: all maps' land, then all maps' lakes, and so on. */
const KINDS: Kind[] = ["land", "lakes", "rivers", "rail", "tunnels", "roads", "places"];

const CLASS: ExpressionSpecification = ["get", "class"];
const IN_TUNNEL: ExpressionSpecification = ["==", ["get", "tunnel"], true];
const IS_RAIL: ExpressionSpecification = ["==", CLASS, "rail"];
const AREAS: FilterSpecification = ["==", ["geometry-type"], "Polygon"];
const LINES: FilterSpecification = ["==", ["geometry-type"], "LineString"];

/** Returns the source of a map's tiles, which lie below the API's address. */
export function sourceOf(base: string, { source, tiles }: Required<MapOfService>): VectorSourceSpecification {
  const path = `${base}v1/maps/${encodeURIComponent(source)}/tiles`;
  return {
    type: "vector",
    tiles: [`${path}/{z}/{x}/{y}?tileset=${tiles.id}`],
    minzoom: tiles.from_zoom,
    maxzoom: tiles.to_zoom,
    bounds: tiles.bounds,
  };
}

export function layersOfGround(ids: string[], colours: GroundColours): LayerSpecification[] {
  return KINDS.flatMap((kind) => ids.map((id) => layerOf(kind, id, colours)));
}

function layerOf(kind: Kind, source: string, colours: GroundColours): LayerSpecification {
  const common = { id: `${source} ${kind}`, source };
  const round = { "line-cap": "round", "line-join": "round" } as const;
  switch (kind) {
    case "land":
      return {
        ...common,
        type: "fill",
        "source-layer": "land",
        paint: { "fill-color": ["match", CLASS, "forest", colours.forest, colours.built], "fill-antialias": false },
      };
    case "lakes":
      return { ...common, type: "fill", "source-layer": "water", filter: AREAS, paint: { "fill-color": colours.water } };
    case "rivers":
      return {
        ...common,
        type: "line",
        "source-layer": "water",
        filter: LINES,
        layout: round,
        paint: { "line-color": colours.water, "line-width": byZoom(1, ["match", CLASS, "stream", 1.5, 5]) },
      };
    case "rail":
      return {
        ...common,
        type: "line",
        "source-layer": "roads",
        filter: ["all", IS_RAIL, ["!", IN_TUNNEL]],
        paint: { "line-color": colours.rail, "line-width": byZoom(0.5, 2), "line-dasharray": [4, 2] },
      };
    case "tunnels":
      return {
        ...common,
        type: "line",
        "source-layer": "roads",
        filter: ["all", ["!", IS_RAIL], IN_TUNNEL],
        paint: { "line-color": colours.road, "line-width": widthOfRoads(), "line-dasharray": [1, 1], "line-opacity": 0.7 },
      };
    case "roads":
      return {
        ...common,
        type: "line",
        "source-layer": "roads",
        filter: ["all", ["!", IS_RAIL], ["!", IN_TUNNEL]],
        layout: { ...round, "line-sort-key": ["match", CLASS, "motorway", 3, "main", 2, "secondary", 1, 0] },
        paint: { "line-color": colours.road, "line-width": widthOfRoads() },
      };
    case "places":
      return {
        ...common,
        type: "symbol",
        "source-layer": "places",
        // The browser's own fonts draw the letters: none have to be loaded.
        layout: {
          "text-field": ["get", "name"],
          "text-size": ["match", CLASS, "city", 16, "town", 14, 12],
          "text-max-width": 8,
          "symbol-sort-key": ["get", "rank"],
        },
        paint: { "text-color": colours.place, "text-halo-color": colours.ground, "text-halo-width": 1.5 },
      };
  }
}

function widthOfRoads(): PropertyValueSpecification<number> {
  return byZoom(["match", CLASS, "motorway", 1.2, "main", 0.8, 0.4], ["match", CLASS, "motorway", 9, "main", 7, "secondary", 5, 3]);
}

/** Grows from zoom 7 to 15. */
function byZoom(from: number | ExpressionSpecification, to: number | ExpressionSpecification): PropertyValueSpecification<number> {
  return ["interpolate", ["exponential", 1.4], ["zoom"], 7, from, 15, to];
}

/** The ground layers of an existing map. */
export class Ground {
  private readonly ended = new AbortController();
  private ids: string[] = [];
  private shown = "";

  constructor(
    private readonly map: MapLibreMap,
    private readonly client: Client,
    /** The layer that the ground goes below. */
    private readonly below: string,
    /** Told whether there is any ground: its makers must then be credited. */
    private readonly onGround: (isThere: boolean) => void,
  ) {}

  close(): void {
    this.ended.abort();
  }

  /** Shows the maps that the service has now. */
  async read(): Promise<void> {
    const found = await this.client
      .all<MapOfService>("v1/maps", "maps", this.ended.signal)
      // On an error the ground stays as it is; the next event has it read again.
      .catch(() => undefined);
    if (!found || this.ended.signal.aborted) return;
    const drawn = found.filter((one): one is Required<MapOfService> => one.tiles !== undefined);
    const shown = drawn.map(({ tiles }) => tiles.id).join();
    if (shown === this.shown) return;
    this.shown = shown;
    this.clear();
    for (const one of drawn) {
      const id = `ground ${one.tiles.id}`;
      this.map.addSource(id, sourceOf(this.client.base, one));
      this.ids.push(id);
    }
    for (const layer of layersOfGround(this.ids, colours())) this.map.addLayer(layer, this.below);
    this.onGround(drawn.length > 0);
  }

  /** Returns the layers in the theme's present colours. */
  layers(): LayerSpecification[] {
    return layersOfGround(this.ids, colours());
  }

  private clear(): void {
    for (const layer of this.layers()) this.map.removeLayer(layer.id);
    for (const id of this.ids) this.map.removeSource(id);
    this.ids = [];
  }
}

function colours(): GroundColours {
  return coloursOf(NAMES);
}
