/** The beam's capacity over time, as stacked areas, and below it a lane for each terminal. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { palette } from "../shell/palette";
import { bps } from "../shell/format";
import { type Band, type Composed, stack } from "./composed";
import { colourOf, STATES } from "./states";

const HEIGHT = 300;
const LANE = 18;
const AXIS = 84;
/** A longer span is labelled in days. */
const LONG_MS = 20 * 3_600_000;

export interface Shown {
  composed: Composed;
  /** Terminals with bands of their own, and their names. */
  nodes: number[];
  names: string[];
  fromMs: number;
  toMs: number;
  nowMs: number;
}

export class CapacityChart {
  private readonly plot: uPlot;
  private shown: Shown | undefined;
  private bands: Band[] = [];
  private composed: Composed | undefined;
  private nodes = "";

  constructor(
    private readonly container: HTMLElement,
    private readonly lanes: HTMLCanvasElement,
  ) {
    this.plot = new uPlot(this.options(), [[0, 1], [null, null]], container);
  }

  destroy(): void {
    this.plot.destroy();
  }

  show(shown: Shown): void {
    this.shown = shown;
    // Stacking costs more than drawing, so it is kept: the window always moves, plans do not.
    if (this.composed !== shown.composed || this.nodes !== shown.nodes.join()) {
      this.composed = shown.composed;
      this.nodes = shown.nodes.join();
      this.bands = stack(shown.composed, shown.nodes);
    }
    const width = this.container.clientWidth;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    const top = Math.max(1, ...shown.composed.capacity.map((one) => one.rateBps));
    this.plot.batch(() => {
      this.plot.setScale("x", { min: shown.fromMs / 1000, max: shown.toMs / 1000 });
      this.plot.setScale("y", { min: 0, max: 1.08 * top });
    });
    this.drawLanes();
  }

  /** Draws again in the theme's colours. */
  recolour(): void {
    this.plot.redraw();
    this.drawLanes();
  }

  private options(): uPlot.Options {
    const text = () => palette().text;
    const grid = { stroke: () => palette().line, width: 1 };
    return {
      width: Math.max(200, this.container.clientWidth),
      height: HEIGHT,
      tzDate: (ts) => uPlot.tzDate(new Date(1000 * ts), "Etc/UTC"),
      cursor: { show: false },
      legend: { show: false },
      scales: { x: { time: true }, y: { range: [0, 1] } },
      axes: [
        { stroke: text, grid, values: (_, ticks) => ticks.map((ts) => this.time(1000 * ts)), space: 80 },
        { stroke: text, grid, size: AXIS, values: (_, ticks) => ticks.map((value) => bps(value)) },
      ],
      series: [{}, { show: false }],
      hooks: { draw: [() => this.draw()] },
    };
  }

  private time(ms: number): string {
    const { fromMs, toMs } = this.shown ?? { fromMs: ms, toMs: ms };
    const text = new Date(ms).toISOString();
    return toMs - fromMs < LONG_MS ? text.slice(11, 19) : `${text.slice(5, 10)} ${text.slice(11, 16)}`;
  }

  private draw(): void {
    const { plot, shown } = this;
    if (!shown) return;
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    for (const band of this.bands) this.drawBand(ctx, band, shown);
    ctx.strokeStyle = palette().text;
    ctx.lineWidth = 1.5 * devicePixelRatio;
    for (const step of shown.composed.capacity) {
      const y = plot.valToPos(step.rateBps, "y", true);
      line(ctx, plot.valToPos(step.fromMs / 1000, "x", true), y, plot.valToPos(step.toMs / 1000, "x", true), y);
    }
    const now = plot.valToPos(shown.nowMs / 1000, "x", true);
    ctx.setLineDash([6, 4]);
    line(ctx, now, top, now, top + height);
    ctx.restore();
  }

  private drawBand(ctx: CanvasRenderingContext2D, band: Band, { nodes, fromMs, toMs }: Shown): void {
    if (band.toMs < fromMs || band.fromMs > toMs || band.highBps <= band.lowBps) return;
    const { plot } = this;
    const place = band.node === undefined ? undefined : nodes.indexOf(band.node);
    const { alpha, hatch } = STATES[band.state];
    const [left, right] = [plot.valToPos(band.fromMs / 1000, "x", true), plot.valToPos(band.toMs / 1000, "x", true)];
    const [top, bottom] = [plot.valToPos(band.highBps, "y", true), plot.valToPos(band.lowBps, "y", true)];
    ctx.fillStyle = colourOf(place, alpha);
    ctx.fillRect(left, top, right - left, bottom - top);
    if (hatch !== "none") hatched(ctx, left, top, right - left, bottom - top, hatch === "up");
    ctx.strokeStyle = palette().surface;
    ctx.lineWidth = 1;
    line(ctx, left, top, right, top);
  }

  private drawLanes(): void {
    const { shown, lanes } = this;
    const ctx = lanes.getContext("2d");
    if (!shown || !ctx) return;
    const ratio = devicePixelRatio;
    const [width, height] = [this.plot.width, LANE * shown.nodes.length];
    lanes.width = width * ratio;
    lanes.height = height * ratio;
    lanes.style.width = `${width}px`;
    lanes.style.height = `${height}px`;
    ctx.scale(ratio, ratio);
    const colours = palette();
    const [left, span] = [this.plot.bbox.left / ratio, this.plot.bbox.width / ratio];
    const x = (ms: number) => left + (span * (ms - shown.fromMs)) / (shown.toMs - shown.fromMs);
    ctx.font = "12px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    shown.nodes.forEach((node, index) => {
      const top = LANE * index;
      ctx.fillStyle = colours.text;
      ctx.fillText(fitted(ctx, shown.names[index] ?? "", left - 8), 2, top + LANE / 2);
      for (const piece of shown.composed.pieces.get(node) ?? []) {
        const [from, to] = [Math.max(left, x(piece.fromMs)), Math.min(left + span, x(piece.toMs))];
        if (to <= from) continue;
        const { alpha, hatch } = STATES[piece.state];
        ctx.fillStyle = piece.state === "blocked" ? colours.blocked : colourOf(index, alpha);
        ctx.fillRect(from, top + 2, to - from, LANE - 4);
        if (hatch !== "none") hatched(ctx, from, top + 2, to - from, LANE - 4, hatch === "up");
      }
      ctx.fillStyle = colours.blocked;
      for (const [fromMs, toMs] of shown.composed.blocked?.get(node) ?? []) {
        const [from, to] = [Math.max(left, x(fromMs)), Math.min(left + span, x(toMs))];
        // Visible, however short it is.
        if (to >= left && from <= left + span) ctx.fillRect(from, top + 2, Math.max(1, to - from), LANE - 4);
      }
    });
  }
}

function line(ctx: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

/** Slanted lines over a rectangle, so that states can be told apart without colour. */
function hatched(ctx: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, up: boolean): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, width, height);
  ctx.clip();
  ctx.strokeStyle = "rgba(255, 255, 255, 0.55)";
  ctx.lineWidth = 2;
  // Lines at fixed places, so that neighbours join.
  const first = Math.floor((x - height) / 8) * 8;
  for (let at = first; at < x + width + height; at += 8) {
    if (up) line(ctx, at, y + height, at + height, y);
    else line(ctx, at, y, at + height, y + height);
  }
  ctx.restore();
}

function fitted(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  let shown = text.slice(0, 40);
  while (shown && ctx.measureText(shown).width > width) shown = shown.slice(0, -1);
  return shown.length < text.length ? `${shown.slice(0, -1)}…` : shown;
}
