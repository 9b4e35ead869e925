import { useState } from "preact/hooks";
import { useLive, useTick } from "../shell/context";
import { bps, bytes, speed } from "../shell/format";
import { hashOf } from "../shell/route";
import { countdown, nextBlockage } from "./blockage";
import { healthOf, type Health } from "./fleet";

/** So many are listed; the search finds the others. */
const MOST_ROWS = 200;
/** Later than any blockage that is expected. */
const FAR_MS = Number.MAX_SAFE_INTEGER;
/** What needs attention comes first. */
const ORDER: Health[] = ["down", "blocked", "silent", "up"];

export function HealthBadge({ health }: { health: Health }) {
  return <span class={`badge ${health}`}>{health}</span>;
}

interface Props {
  beam?: string | undefined;
  tag?: string | undefined;
  /** Leaves out what does not fit beside a map. */
  narrow?: boolean;
  selected?: number | undefined;
}

export function VehicleTable({ beam, tag, narrow = false, selected }: Props) {
  const live = useLive();
  const [search, setSearch] = useState("");
  useTick();
  const now = live.now();
  const wanted = search.trim().toLowerCase();
  const found = [...live.fleet.terminals.values()]
    .filter((one) => beam === undefined || one.beam === beam)
    .filter((one) => !tag || one.tags?.includes(tag))
    .filter((one) => !wanted || `${one.node} ${one.name} ${one.beam} ${one.tags}`.toLowerCase().includes(wanted))
    .map((terminal) => {
      const vehicle = live.fleet.vehicle(terminal.node);
      return { terminal, vehicle, health: healthOf(vehicle), ahead: nextBlockage(vehicle, now) };
    })
    .sort(
      (a, b) =>
        ORDER.indexOf(a.health) - ORDER.indexOf(b.health) ||
        // Those without one are equal: Infinity less Infinity is no number.
        (a.ahead?.inMs ?? FAR_MS) - (b.ahead?.inMs ?? FAR_MS) ||
        a.terminal.node - b.terminal.node,
    );
  return (
    <section aria-label="Terminals" class="vehicles">
      <label class="search">
        Find <input type="search" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
      </label>
      <p class="count" role="status">
        {found.length} terminals{found.length > MOST_ROWS ? `, the first ${MOST_ROWS} of them here` : ""}
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
            {found.slice(0, MOST_ROWS).map(({ terminal, vehicle, health, ahead }) => (
              <tr key={terminal.node} class={terminal.node === selected ? "selected" : ""}>
                <th scope="row">
                  <a href={narrow ? hashOf("map", terminal.node) : hashOf("terminals", terminal.node)}>
                    {terminal.name}
                  </a>
                </th>
                <td>
                  <HealthBadge health={health} />
                </td>
                <td>{ahead ? countdown(ahead) : ""}</td>
                <td class="number">{bps(live.fleet.rates.newest(terminal.node, "forward"))}</td>
                {!narrow && <td class="number">{bps(live.fleet.rates.newest(terminal.node, "return"))}</td>}
                {!narrow && <td class="number">{bytes(vehicle.forward?.backlogged_bytes)}</td>}
                {!narrow && <td class="number">{speed(vehicle.position?.speed_mps)}</td>}
                {!narrow && (
                  <td>
                    <a href={hashOf("beams", terminal.beam)}>
                      {live.fleet.beams.get(terminal.beam)?.name ?? terminal.beam}
                    </a>
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
