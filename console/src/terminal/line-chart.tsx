import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useLive } from "../shell/context";
import { onThemeChange, palette, type Palette } from "../shell/palette";
import type { Columns } from "./series";

const HEIGHT = 190;
const WINDOW_S = 300;
const DRAW_MS = 1000;
/** The axis reaches at least this far. */
const LEAST = 1000;

export interface LineChartProps {
  label: string;
  names: string[];
  colours: (keyof Palette)[];
  /** Returns what to draw now, and when the link was not up. */
  read: () => { columns: Columns; outages: [number, number][] };
  format: (value: number) => string;
  /** Length of the time shown, which ends now, s; constant for the life of the chart. */
  windowS?: number;
  /** That length in words. */
  span?: string;
}

/** The last minutes or hours of a link. */
export function LineChart({ label, names, colours, read, format, windowS = WINDOW_S, span = "five minutes" }: LineChartProps) {
  const live = useLive();
  const container = useRef<HTMLDivElement>(null);
  const newest = useRef(read);
  newest.current = read;
  useEffect(() => {
    const element = container.current;
    if (!element) return undefined;
    let outages: [number, number][] = [];
    const shade = (plot: uPlot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.fillStyle = palette().blocked;
      ctx.globalAlpha = 0.18;
      for (const [from, to] of outages) {
        const left = Math.max(bbox.left, plot.valToPos(from, "x", true));
        const right = Math.min(bbox.left + bbox.width, plot.valToPos(to, "x", true));
        if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
      }
      ctx.restore();
    };
    const text = () => palette().text;
    const grid = { stroke: () => palette().line, width: 1 };
    const plot = new uPlot(
      {
        width: Math.max(200, element.clientWidth),
        height: HEIGHT,
        tzDate: (ts) => uPlot.tzDate(new Date(1000 * ts), "Etc/UTC"),
        cursor: { show: false },
        legend: { show: false },
        scales: { x: { time: true }, y: { range: (_, __, max) => [0, 1.1 * Math.max(LEAST, max)] } },
        axes: [
          { stroke: text, grid, space: 90, values: (_, ticks) => ticks.map((ts) => new Date(1000 * ts).toISOString().slice(11, 19)) },
          { stroke: text, grid, size: 84, values: (_, ticks) => ticks.map(format) },
        ],
        series: [
          {},
          ...names.map((_, index) => ({
            stroke: () => palette()[colours[index] ?? "text"],
            width: 2,
            // Not everybody can tell lines apart by colour.
            dash: [[], [8, 4], [2, 3]][index] ?? [],
            points: { show: false },
          })),
        ],
        hooks: { drawAxes: [shade] },
      },
      newest.current().columns as uPlot.AlignedData,
      element,
    );
    const draw = () => {
      if (document.hidden) return;
      const { columns, outages: found } = newest.current();
      outages = found;
      const now = live.now() / 1000;
      if (element.clientWidth > 0 && element.clientWidth !== plot.width) plot.setSize({ width: element.clientWidth, height: HEIGHT });
      plot.batch(() => {
        plot.setData(columns as uPlot.AlignedData);
        plot.setScale("x", { min: now - windowS, max: now });
      });
    };
    draw();
    const timer = setInterval(draw, DRAW_MS);
    const offTheme = onThemeChange(() => plot.redraw());
    return () => {
      clearInterval(timer);
      offTheme();
      plot.destroy();
    };
  }, [live]);
  return (
    <figure class="chart">
      <div ref={container} role="img" aria-label={`${label} in the last ${span}`} />
      <figcaption>
        <ul class="key">
          {names.map((name, index) => (
            <li key={name}>
              <svg width="28" height="8" aria-hidden="true">
                <line x1="0" y1="4" x2="28" y2="4" stroke={`var(--${colours[index]})`} stroke-width="3" stroke-dasharray={["", "8 4", "2 3"][index]} />
              </svg>{" "}
              {name}
            </li>
          ))}
        </ul>
        <p class="note">Times are UTC.</p>
      </figcaption>
    </figure>
  );
}
