import { useState } from "preact/hooks";
import type { LinkName, Terminal } from "../api/types";
import { useLive, useTick } from "../shell/context";
import { counted } from "../shell/counted";
import { bps, bytes, speed } from "../shell/format";
import { hashOf } from "../shell/route";
import { firstOf } from "./attention";
import { countdown } from "./blockage";
import type { Health, Vehicle } from "./fleet";

/** The most vehicles listed; the search finds the others. */
const MOST_ROWS = 200;

export function HealthBadge({ health }: { health: Health }) {
  return <span class={`badge ${health}`}>{health}</span>;
}

interface Props {
  /** Tells which terminals are listed: all without it. */
  wants?: (one: Terminal) => boolean;
  /** Leaves out what does not fit beside a map. */
  narrow?: boolean;
  selected?: number | undefined;
}

export function VehicleTable({ wants = () => true, narrow = false, selected }: Props) {
  const live = useLive();
  const [search, setSearch] = useState("");
  useTick();
  const { fleet } = live;
  const wanted = search.trim().toLowerCase();
  const fits = (one: Terminal) =>
    wants(one) && (!wanted || `${one.node} ${one.name} ${one.beam} ${one.tags}`.toLowerCase().includes(wanted));
  const { count, listed } = firstOf(fleet, live.now(), MOST_ROWS, fits, live.asOf());
  const isReading = live.following.mustRead && fleet.terminals.size === 0;
  // The last rate of a silent link is not shown.
  const rate = (node: number, link: LinkName, health: Health) => bps(health === "silent" ? undefined : fleet.rates.newest(node, link));
  return (
    <section aria-label="Terminals" class="vehicles">
      <label>
        Find <input type="search" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
      </label>
      <p class="count" role="status">
        {isReading ? "reading…" : counted(count, "terminal")}
        {count > MOST_ROWS ? `, the first ${MOST_ROWS} of them here` : ""}
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="List of terminals">
        <table>
          <thead>
            <tr>
              <th scope="col">Terminal</th>
              <th scope="col">Link</th>
              <th scope="col">Blockage</th>
              <th scope="col" class="number">To it</th>
              {!narrow && <th scope="col" class="number">From it</th>}
              {!narrow && <th scope="col" class="number">Waiting</th>}
              {!narrow && <th scope="col" class="number">Speed</th>}
              {!narrow && <th scope="col">Beam</th>}
            </tr>
          </thead>
          <tbody>
            {listed.map(({ terminal: { node, name, beam: of }, vehicle, health, ahead }) => (
              <tr key={node} class={node === selected ? "selected" : ""}>
                <th scope="row">
                  <a href={hashOf(narrow ? "map" : "terminals", node)} aria-current={node === selected || undefined}>
                    {name}
                  </a>
                </th>
                <td>
                  <HealthBadge health={health} />
                </td>
                <td>{ahead ? countdown(ahead) : ""}</td>
                <td class="number">{rate(node, "forward", health)}</td>
                {!narrow && <td class="number">{rate(node, "return", health)}</td>}
                {!narrow && <td class="number">{bytes(waiting(vehicle))}</td>}
                {!narrow && <td class="number">{speed(vehicle.position?.speed_mps)}</td>}
                {!narrow && (
                  <td>
                    <a href={hashOf("beams", of)}>{fleet.beams.get(of)?.name ?? of}</a>
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** The backlog of both directions, as far as it is known. */
function waiting({ forward, return: back }: Vehicle): number | undefined {
  return forward || back ? (forward?.backlogged_bytes ?? 0) + (back?.backlogged_bytes ?? 0) : undefined;
}
