import { useEffect, useState } from "preact/hooks";
import type { LogLine } from "../fleet/event-log";
import { useLive, useTick } from "../shell/context";
import { utcOn } from "../shell/dates";
import { Flaw } from "../shell/form";
import { useKeptFocus } from "../shell/kept-focus";
import { hashOf, type Route } from "../shell/route";
import { Table } from "../shell/table";

const KINDS = ["console", "blockages", "links", "plans", "ledger", "announcements", "alerts", "terminal", "intervention", "rollout", "settings", "beam", "obstructions", "tiles", "lease", "opensand"];
/** So many lines are shown, and as many more each time that older ones are asked for. */
const AT_ONCE = 300;

/** The events since the console was opened: filtered, and linked with the map. */
export default function EventsPage({ route }: { route: Route }) {
  const live = useLive();
  useKeptFocus();
  useTick();
  const [isUnread, setIsUnread] = useState(false);
  useEffect(() => void live.loadLog().catch(() => setIsUnread(true)), [live]);
  const all = live.log?.lines ?? [];
  const [kind, setKind] = useState(route.query.get("kind") ?? "");
  const [text, setText] = useState(route.query.get("text") ?? "");
  const [paused, setPaused] = useState<LogLine[]>();
  const [most, setMost] = useState(AT_ONCE);
  const wanted = text.trim().toLowerCase();
  const found = (paused ?? all).filter(
    (line) => (!kind || line.kind === kind) && (!wanted || matches(line.text, line.beam, wanted)),
  );
  const older = found.length - most;
  return (
    <div class="page">
      <h1>Events</h1>
      <div class="filters">
        <label>
          Kind{" "}
          <select value={kind} onChange={(e) => setKind(e.currentTarget.value)}>
            <option value="">all</option>
            {KINDS.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <label>
          With <input type="search" value={text} onInput={(e) => setText(e.currentTarget.value)} />
        </label>
        <button type="button" aria-pressed={paused !== undefined} onClick={() => setPaused(paused ? undefined : all)}>
          Pause
        </button>
      </div>
      {isUnread && <Flaw>The log of events could not be loaded: reload the page.</Flaw>}
      <p class="count">
        {live.log ? found.length : "…"} since this console was opened, and blockages of the hour before{older > 0 ? `; the newest ${most} here` : ""}
      </p>
      <Table label="List of events" columns={["UTC", "Kind", "What", "Where"]}>
        {found.slice(0, most).map((line) => (
          <tr key={line.key}>
            <td>
              <time>{utcOn(line.timeMs, live.now())}</time>
            </td>
            <td>{line.kind}</td>
            <td>{line.text}</td>
            <td>
              {line.terminal !== undefined && <a href={hashOf("map", line.terminal)}>map</a>}{" "}
              {line.terminal !== undefined && <a href={hashOf("terminals", line.terminal)}>terminal</a>}{" "}
              {line.gateway !== undefined && <a href={hashOf("gateways", line.gateway)}>gateway</a>}{" "}
              {line.beam !== undefined && <a href={hashOf("beams", line.beam)}>beam</a>}
            </td>
          </tr>
        ))}
      </Table>
      {older > 0 && (
        <button type="button" onClick={() => setMost(most + AT_ONCE)}>
          Show {Math.min(AT_ONCE, older)} older
        </button>
      )}
    </div>
  );
}

function matches(text: string, beam: string | undefined, wanted: string): boolean {
  return `${text} ${beam ?? ""}`.toLowerCase().includes(wanted);
}
