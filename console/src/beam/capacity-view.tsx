import { useEffect, useRef } from "preact/hooks";
import { onThemeChange } from "../shell/palette";
import { useLive } from "../shell/context";
import { CapacityChart } from "./capacity-chart";
import { type Composed, ofInterest } from "./composed";
import { colourOf, STATES } from "./states";

const MOST_BANDS = 8;
const DRAW_MS = 500;

interface Props {
  composed: Composed;
  /** How much of the past and of what is ahead is shown, ms. */
  pastMs: number;
  aheadMs: number;
  label: string;
}

export function CapacityView({ composed, pastMs, aheadMs, label }: Props) {
  const live = useLive();
  const container = useRef<HTMLDivElement>(null);
  const lanes = useRef<HTMLCanvasElement>(null);
  const newest = useRef(composed);
  newest.current = composed;
  const nodes = ofInterest(composed, MOST_BANDS);
  const others = composed.pieces.size - nodes.length;

  useEffect(() => {
    if (!container.current || !lanes.current) return undefined;
    const chart = new CapacityChart(container.current, lanes.current);
    const draw = () => {
      if (document.hidden) return;
      const nowMs = live.now();
      const shown = ofInterest(newest.current, MOST_BANDS);
      const names = shown.map((node) => live.fleet.nameOf(node));
      chart.show({ composed: newest.current, nodes: shown, names, nowMs, fromMs: nowMs - pastMs, toMs: nowMs + aheadMs });
    };
    draw();
    const timer = setInterval(draw, DRAW_MS);
    const offTheme = onThemeChange(() => chart.recolour());
    return () => {
      clearInterval(timer);
      offTheme();
      chart.destroy();
    };
  }, [live, pastMs, aheadMs]);

  return (
    <figure class="chart">
      <div ref={container} role="img" aria-label={`${label}: each terminal's part, stacked; the table of the plan has the figures`} />
      <canvas ref={lanes} role="img" aria-label="State of each terminal over the same time" />
      <figcaption>
        <ul class="key">
          {nodes.map((node, place) => (
            <li key={node}>
              <span class="patch" style={{ background: colourOf(place) }} /> {live.fleet.nameOf(node)}
            </li>
          ))}
          {others > 0 && (
            <li>
              <span class="patch" style={{ background: colourOf(undefined) }} /> {others} others
            </li>
          )}
        </ul>
        <ul class="key">
          {Object.entries(STATES).map(([state, { text, alpha, hatch }]) => (
            <li key={state}>
              <span class={`patch ${hatch} ${state}`} style={{ opacity: alpha || 1 }} /> {text}
            </li>
          ))}
        </ul>
        <p class="note">Times are UTC.</p>
      </figcaption>
    </figure>
  );
}
