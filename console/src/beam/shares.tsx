/** A link's capacity as two totals: for the vehicles that the caller sees, and for all others. */

import type { LinkName, Shares } from "../api/types";
import { useLive } from "../shell/context";
import { bps } from "../shell/format";
import { Failure, useRead } from "../shell/read";
import { Table } from "../shell/table";

const SHARES_MS = 5_000;
export const NO_PLAN = "There is no plan yet: it is made once terminals report.";

export function SharesView({ beam, link }: { beam: string; link: LinkName }) {
  const live = useLive();
  const path = `v1/beams/${beam}/shares`;
  const found = useRead((signal) => live.client.get<Shares>(path, signal), path, SHARES_MS);
  const shares = found.value?.links.find((one) => one.link === link);
  return (
    <section class="card" aria-labelledby="shares">
      <h2 id="shares">Shares: what the plan gives now</h2>
      <Failure of={found} />
      {found.value && !shares && <p>{NO_PLAN}</p>}
      {shares && (
        <Table label="Shares of the link" columns={["Whose", { number: "Terminals" }, { number: "Rate" }]}>
          {(["own", "others"] as const).map((whose) => (
            <tr key={whose}>
              <th scope="row">{whose === "own" ? "Your vehicles" : "All others"}</th>
              <td class="number">{shares[whose].terminals}</td>
              <td class="number">{bps(shares[whose].rate_bps)}</td>
            </tr>
          ))}
        </Table>
      )}
      <p class="note">Plans as a whole, debts and fairness concern more than one tenant, and are not shown.</p>
    </section>
  );
}
