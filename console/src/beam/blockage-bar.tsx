/** A blockage on a time line: drag it to change its begin, or an end of it to change its duration. */

import { useRef } from "preact/hooks";

export interface Span {
  /** From now, s. */
  startS: number;
  endS: number;
}

/** By how many seconds a key moves. */
const STEPS: Record<string, number> = {
  ArrowLeft: -1,
  ArrowDown: -1,
  ArrowRight: 1,
  ArrowUp: 1,
  PageDown: -10,
  PageUp: 10,
  Home: -Infinity,
  End: Infinity,
};

type Part = "start" | "end" | "all";

interface Props {
  span: Span;
  /** The length of the time line, s. */
  overS: number;
  onChange: (span: Span) => void;
  /** Called when it is released, or moved by a key. */
  onDone: (span: Span) => void;
}

/** The span after a part of it has moved by some seconds; it stays on the line and is never empty. */
export function movedBy({ startS, endS }: Span, part: Part, byS: number, overS: number): Span {
  if (part === "start") return { startS: Math.round(Math.min(endS - 1, Math.max(0, startS + byS))), endS };
  if (part === "end") return { startS, endS: Math.round(Math.max(startS + 1, Math.min(overS, endS + byS))) };
  const by = Math.round(Math.max(-startS, Math.min(overS - endS, byS)));
  return { startS: startS + by, endS: endS + by };
}

export function BlockageBar({ span, overS, onChange, onDone }: Props) {
  const line = useRef<HTMLDivElement>(null);
  const dragged = useRef<{ part: Part; fromX: number; before: Span; now: Span } | undefined>(undefined);

  const begin = (part: Part) => (event: PointerEvent) => {
    event.preventDefault();
    event.stopPropagation();
    (event.currentTarget as Element).setPointerCapture(event.pointerId);
    dragged.current = { part, fromX: event.clientX, before: span, now: span };
  };
  const move = (event: PointerEvent) => {
    const drag = dragged.current;
    const width = line.current?.clientWidth;
    if (!drag || !width) return;
    drag.now = movedBy(drag.before, drag.part, ((event.clientX - drag.fromX) / width) * overS, overS);
    onChange(drag.now);
  };
  const end = () => {
    const drag = dragged.current;
    dragged.current = undefined;
    if (drag) onDone(drag.now);
  };
  const key = (part: Part) => (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const now = movedBy(span, part, step, overS);
    onChange(now);
    onDone(now);
  };
  const handle = (part: "start" | "end", label: string, valueS: number) => (
    <span
      class={`handle ${part}`}
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={overS}
      aria-valuenow={valueS}
      aria-valuetext={`${valueS} s from now`}
      onPointerDown={begin(part)}
      onKeyDown={key(part)}
    />
  );
  const place = { left: `${(100 * span.startS) / overS}%`, width: `${(100 * (span.endS - span.startS)) / overS}%` };
  return (
    <div class="blockage-bar" ref={line} onPointerMove={move} onPointerUp={end} onPointerCancel={end}>
      <div class="blocked" style={place} onPointerDown={begin("all")}>
        {handle("start", "Blocked from", span.startS)}
        {handle("end", "Blocked until", span.endS)}
      </div>
      <span class="from">now</span>
      <span class="until">{overS} s</span>
    </div>
  );
}
