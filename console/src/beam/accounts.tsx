import { useMemo, useState } from "preact/hooks";
import { timeOf } from "../api/time";
import type { Balances, Fairness, LinkName } from "../api/types";
import { Choice } from "../shell/choice";
import { useLive } from "../shell/context";
import { utcOn } from "../shell/dates";
import { bits, bps, seconds } from "../shell/format";
import { Failure, useRead } from "../shell/read";
import { Table } from "../shell/table";
import { fairSpans, settledS } from "./fair-spans";

const BALANCES_MS = 5_000;
const FAIRNESS_MS = 15_000;
/** A longer time changes more slowly, and costs the service more. */
const READS_IN_TIME = 40;
const MOST_ROWS = 50;
const MORE_ROWS = 200;

/** Debts, the fairness of the last minutes, and what each link's bits cost. */
export function Accounts({ beam, link }: { beam: string; link: LinkName }) {
  const live = useLive();
  const key = `${beam} ${link}`;
  const readBalances = (signal: AbortSignal) => live.client.get<Balances>(`v1/beams/${beam}/balances?link=${link}`, signal);
  const balances = useRead(readBalances, key, BALANCES_MS);
  const { terminals, changes } = live.fleet;
  const spans = useMemo(() => {
    const ofBeam = [...terminals.values()].filter((one) => one.beam === beam);
    return fairSpans(ofBeam.length);
  }, [beam, terminals, changes]);
  const [chosen, setChosen] = useState(0);
  const over = Math.min(chosen, spans.length - 1);
  const overMs = spans[over]?.[1] ?? 0;
  const fairness = useRead(
    async (signal) => {
      const path = `v1/beams/${beam}/fairness?since=${timeOf(live.now() - overMs)}&link=${link}`;
      // Read both together: a long time is read again only after many minutes, in which more is settled.
      const [value, { links }] = await Promise.all([live.client.get<Fairness>(path, signal), readBalances(signal)]);
      return { links: value.links, settledS: settledS(value, links[0]?.settled_until) };
    },
    `${key} ${overMs}`,
    Math.max(FAIRNESS_MS, overMs / READS_IN_TIME),
  );
  const owed = balances.value?.links[0];
  const fair = fairness.value?.links[0];
  const debts = [...(owed?.balances ?? [])].sort((a, b) => Math.abs(b.bits) - Math.abs(a.bits));
  const most = Math.abs(debts[0]?.bits ?? 1);
  const settled = fairness.value?.settledS;
  const [text, setText] = useState("");
  const [shown, setShown] = useState(MOST_ROWS);
  const wanted = text.trim().toLowerCase();
  const matching = (fair?.terminals ?? []).filter(({ terminal }) => `${terminal} ${live.fleet.nameOf(terminal)}`.toLowerCase().includes(wanted));
  const efficiency = (node: number) => {
    const state = live.fleet.vehicles.get(node)?.[link];
    return state ? `${state.efficiency}${state.efficiency_told ? "" : " (not told)"}` : "–";
  };
  return (
    <section class="card" aria-labelledby="debts">
      <h2 id="debts">Debts</h2>
      <Failure of={balances} />
      {owed?.balances.length === 0 && <p>Nobody owes anything.</p>}
      {debts.length > MOST_ROWS && <p class="count">The {MOST_ROWS} largest of {debts.length}.</p>}
      <ul class="debts">
        {debts.slice(0, MOST_ROWS).map((one) => (
          <li key={one.terminal}>
            <span>{live.fleet.nameOf(one.terminal)}</span>
            <meter min={0} max={most} value={Math.abs(one.bits)} aria-label={`${live.fleet.nameOf(one.terminal)}: size of the debt`} />
            <span>
              {one.bits > 0 ? "is owed" : "owes"} {bits(Math.abs(one.bits))}, for {seconds(live.now() - Date.parse(one.since))}
            </span>
          </li>
        ))}
      </ul>
      {owed?.settled_until && <p class="note">Settled until {utcOn(Date.parse(owed.settled_until), live.now())} UTC.</p>}
      <h2>Fairness</h2>
      <p class="filters">
        <Choice label="In the last" of={spans} value={over} onChange={setChosen} />
      </p>
      <Failure of={fairness} />
      {fair && (
        <>
          <p>
            Jain's index of what was sent: {fair.jain?.toFixed(4) ?? "–"}
            {fair.jain_by_weight !== undefined && fair.jain_by_weight !== null && `, by weight ${fair.jain_by_weight.toFixed(4)}`}
          </p>
          {fair.terminals.length > MOST_ROWS && (
            <p class="filters">
              <label>
                Terminals with <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
              </label>
            </p>
          )}
          <Table
            label="What each terminal sent and was given"
            columns={["Terminal", { number: "Mean rate" }, { number: "Planned" }, { number: "Fair share" }, { number: "Blocked" }, { number: "Efficiency" }]}
          >
            {matching.slice(0, shown).map((one) => (
              <tr key={one.terminal}>
                <th scope="row">{live.fleet.nameOf(one.terminal)}</th>
                <td class="number">{bps(one.throughput_bps)}</td>
                <td class="number">{bps(settled && one.planned_bits / settled)}</td>
                <td class="number">{bps(settled && one.fair_bits / settled)}</td>
                <td class="number">{seconds(one.blocked_ms)}</td>
                <td class="number">{efficiency(one.terminal)}</td>
              </tr>
            ))}
          </Table>
          {matching.length > shown && (
            <p class="count">
              The first {shown} of {matching.length}.{" "}
              <button type="button" onClick={() => setShown(shown + MORE_ROWS)}>
                Show {Math.min(MORE_ROWS, matching.length - shown)} more
              </button>
            </p>
          )}
        </>
      )}
    </section>
  );
}
