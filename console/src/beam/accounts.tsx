import type { Balances, Fairness, LinkName } from "../api/types";
import { useLive } from "../shell/context";
import { bits, bps, seconds, utc } from "../shell/format";
import { Failure, useRead } from "../shell/read";

const BALANCES_MS = 5_000;
const FAIRNESS_MS = 15_000;
const FAIRNESS_OVER_MS = 600_000;
const MOST_ROWS = 50;

/** Who owes how much; how fair the last minutes were, and what each link's bits cost. */
export function Accounts({ beam, link }: { beam: string; link: LinkName }) {
  const live = useLive();
  const key = `${beam} ${link}`;
  const balances = useRead((signal) => live.client.get<Balances>(`v1/beams/${beam}/balances?link=${link}`, signal), key, BALANCES_MS);
  const since = () => encodeURIComponent(new Date(live.now() - FAIRNESS_OVER_MS).toISOString());
  const fairness = useRead(
    (signal) => live.client.get<Fairness>(`v1/beams/${beam}/fairness?since=${since()}&link=${link}`, signal),
    key,
    FAIRNESS_MS,
  );
  const owed = balances.value?.links[0];
  const fair = fairness.value?.links[0];
  const most = Math.max(1, ...(owed?.balances.map((one) => Math.abs(one.bits)) ?? []));
  const efficiency = (node: number) => {
    const state = live.fleet.vehicles.get(node)?.[link];
    return state ? `${state.efficiency}${state.efficiency_told ? "" : " (not told)"}` : "–";
  };
  return (
    <section class="card" aria-labelledby="debts">
      <h2 id="debts">Debts</h2>
      <Failure of={balances} />
      {owed?.balances.length === 0 && <p>Nobody owes anything.</p>}
      <ul class="debts">
        {owed?.balances.slice(0, MOST_ROWS).map((one) => (
          <li key={one.terminal}>
            <span>{live.fleet.nameOf(one.terminal)}</span>
            <meter min={0} max={most} value={Math.abs(one.bits)} aria-label={`${live.fleet.nameOf(one.terminal)}: size of the debt`} />
            <span>
              {one.bits > 0 ? "is owed" : "owes"} {bits(Math.abs(one.bits))}, for {seconds(live.now() - Date.parse(one.since))}
            </span>
          </li>
        ))}
      </ul>
      {owed?.settled_until && <p class="note">Settled until {utc(Date.parse(owed.settled_until))} UTC.</p>}
      <h2>Fairness in the last 10 minutes</h2>
      <Failure of={fairness} />
      {fair && (
        <>
          <p>
            Jain's index of what was sent: {fair.jain?.toFixed(4) ?? "–"}
            {fair.jain_by_weight !== undefined && fair.jain_by_weight !== null && `, by weight ${fair.jain_by_weight.toFixed(4)}`}
          </p>
          <div class="scroll" tabIndex={0} role="region" aria-label="What each terminal sent and was given">
            <table>
              <thead>
                <tr>
                  <th scope="col">Terminal</th>
                  <th scope="col" class="number">Mean rate</th>
                  <th scope="col" class="number">Planned</th>
                  <th scope="col" class="number">Fair share</th>
                  <th scope="col" class="number">Blocked</th>
                  <th scope="col" class="number">Efficiency</th>
                </tr>
              </thead>
              <tbody>
                {fair.terminals.slice(0, MOST_ROWS).map((one) => (
                  <tr key={one.terminal}>
                    <th scope="row">{live.fleet.nameOf(one.terminal)}</th>
                    <td class="number">{bps(one.throughput_bps)}</td>
                    <td class="number">{bits(one.planned_bits)}</td>
                    <td class="number">{bits(one.fair_bits)}</td>
                    <td class="number">{seconds(one.blocked_ms)}</td>
                    <td class="number">{efficiency(one.terminal)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </section>
  );
}
